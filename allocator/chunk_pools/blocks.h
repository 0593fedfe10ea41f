// SPDX-License-Identifier: Apache-2.0
// The blocks inside chunks of any size: a block's record, the map of one chunk's blocks, the table
// of all blocks of a pool, and the store of unused records. Not thread-safe: the lock of the
// BlockPool protects all of it.
//
// Nothing can be written into device memory, so the boundary tags are here. A block links to its
// neighbours by address. The map knows the first block of every 2 MiB, so finding the block around
// an address takes no walk over the chunk.
#pragma once

#include <bit>
#include <cstdint>

#include "allocator/base/records.h"
#include "allocator/base/source.h"
#include "allocator/chunk/chunk.h"
#include "allocator/chunk_pools/chunk_sizes.h"

namespace cistern::alloc {

struct ChunkMap;

inline uint32_t granules_for(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + kBlockGranule - 1) / kBlockGranule);
}

struct ChunkBlock {
  uint32_t start;  // granules from the chunk's base
  uint32_t granules;
  ChunkBlock* before;  // neighbours by address, nullptr at the chunk's ends
  ChunkBlock* after;
  union {
    ChunkBlock* next;  // clean: in its bin; freed: FreedQueue; else unused records
    uint64_t born;     // live: the Epoch in which it was handed out (allocator/reclaim/reclaim.h)
  };
  union {
    ChunkBlock* prev;    // clean: in its bin
    uint64_t stamp;      // freed: FreedQueue
    uint64_t requested;  // live: bytes the program asked for
  };
  ChunkBlock* same_bucket;   // BlockTable
  uint64_t state : 8;        // a whole byte: it changes three times per allocation and free
  uint64_t exported : 1;     // known outside the process: never to be reused
  uint64_t asked_bits : 10;  // see keep_asked()
  uint64_t map_bits : 45;    // see set_map()

  BlockState is() const { return static_cast<BlockState>(state); }
  void become(BlockState s) { state = static_cast<uint8_t>(s); }
  // For a live block: records bytes() - requested + 1, so that asked_of() still knows the requested
  // size once it is freed.
  void keep_asked() {
    const uint64_t lost = bytes() - requested;
    asked_bits = lost < kBlockGranule ? (lost + 1) & 0x3ff : 0;
  }
  // Fits, because os::map() returns addresses below 2^48, and records begin at multiples of 8.
  void set_map(const ChunkMap* map) {
    map_bits = (reinterpret_cast<uintptr_t>(map) >> 3) & ((uint64_t{1} << 45) - 1);
  }
  ChunkMap* map() const { return reinterpret_cast<ChunkMap*>(uint64_t{map_bits} << 3); }
  uint64_t bytes() const { return uint64_t{granules} * kBlockGranule; }
  inline uint64_t address() const;
  // Granules from the block's start to the first aligned one; `align` in granules.
  inline uint32_t to_aligned(uint32_t align) const;
  // Whether an aligned block of `wanted` granules can be cut from it.
  bool fits(uint32_t wanted, uint32_t align) const {
    return uint64_t{to_aligned(align)} + wanted <= granules;
  }
};
static_assert(sizeof(ChunkBlock) == 56);  // and one bucket: 64 bytes a block

struct ChunkMap {
  static constexpr uint32_t kRegionGranules = kDriverPage / kBlockGranule;
  static constexpr uint32_t kOwnHeads = 16;
  static constexpr uint64_t kMaxBytes = kMostChunkBytes;

  Chunk* chunk;  // also the Arena's link: written only under the pool's lock while in use
  uint64_t base;
  uint32_t granules;
  uint32_t live;         // blocks the program holds, plus rooms
  uint32_t rooms;        // blocks that are reserved for members of groups
  uint32_t waiting;      // blocks freed and not yet clean, parked ones too
  uint32_t quarantined;  // blocks freed that never become clean
  uint32_t filling;      // blocks that are taken out to be filled
  bool own;              // made for one request larger than a chunk: not the pool's first chunk
  uint64_t rounding;     // bytes that the driver adds to its size: it rounds large ones to 2 MiB
  Unit* units;           // of a range (Role::range): the unit behind each slot, or 0
  bool idle;             // counted as idle: idle_now() when it was last looked at
  ChunkMap* previous;    // of the pool's maps
  ChunkMap* next;
  ChunkBlock** heads;  // the first block that starts in each region, or nullptr
  ChunkBlock* own_heads[kOwnHeads];

  // Makes the whole chunk one block, `all`, which is in no list. False if there is no memory for
  // the heads.
  bool open(Chunk* owner, ChunkBlock* all);
  void close();

  // Cuts `block` after `granules`; `rest` becomes the block behind it.
  void split(ChunkBlock* block, uint32_t granules, ChunkBlock* rest);

  // Extends `first` by `second`, the block behind it. `second` is no block any more.
  void join(ChunkBlock* first, ChunkBlock* second);

  // The block that contains this granule of the chunk.
  ChunkBlock* around(uint32_t granule) const;
  // The block that contains the first granule of a region. Takes no walk over the blocks of earlier
  // regions.
  ChunkBlock* at_region(uint32_t region) const;

  ChunkBlock* first_block() const { return heads[0]; }

  // Used by the program, or by a fill that is under way.
  bool in_use() const { return live != 0 || filling != 0; }

  // Nothing in it is live, waiting or being filled.
  bool idle_now() const { return !in_use() && waiting == 0; }

 private:
  uint32_t regions() const { return (granules - 1) / kRegionGranules + 1; }
};

uint64_t ChunkBlock::address() const { return map()->base + uint64_t{start} * kBlockGranule; }

// For allocator/chunk/pool_base.h and fill.h.
inline uint64_t address_of(const ChunkBlock* block) { return block->address(); }
inline uint64_t bytes_of(const ChunkBlock* block) { return block->bytes(); }
inline ChunkMap* bookkeeping_of(const ChunkBlock* block) { return block->map(); }
inline uint64_t asked_of(const ChunkBlock* block) {
  return block->asked_bits == 0 ? 0 : block->bytes() + 1 - block->asked_bits;
}
inline void forget_asked(ChunkBlock* block) { block->asked_bits = 0; }

uint32_t ChunkBlock::to_aligned(uint32_t align) const {
  return static_cast<uint32_t>(0 - address() / kBlockGranule) & (align - 1);
}

// Finds a block by its place (chunk and first granule), in constant time however many blocks there
// are. Linear hashing: whenever there are more blocks than buckets, one bucket is added, so no
// insertion rehashes the whole table. Eight bytes a block.
class BlockTable {
 public:
  void insert(ChunkBlock* block) {
    ChunkBlock*& bucket = bucket_of(hash(block->map(), block->start));
    block->same_bucket = bucket;
    bucket = block;
    if (++count_ > size_) [[unlikely]]
      grow();
  }

  void erase(const ChunkBlock* block) {
    if (soon_wanted_ == block) soon_wanted_ = nullptr;
    ChunkBlock** link = &bucket_of(hash(block->map(), block->start));
    while (*link != block) link = &(*link)->same_bucket;
    *link = block->same_bucket;
    --count_;
  }

  // The block that starts at granule `start` of the chunk, or nullptr.
  ChunkBlock* find(const ChunkMap* map, uint32_t start) {
    const bool is_last = soon_wanted_ != nullptr && is_at(soon_wanted_, map, start);
    return is_last ? soon_wanted_ : look_up(map, start);
  }

  // As find(), for a block that is likely to be looked up again: a free looks its block up twice.
  ChunkBlock* find_first(const ChunkMap* map, uint32_t start) {
    return soon_wanted_ = find(map, start);
  }
  // As find_first(), for a block that is usually not the last one found.
  ChunkBlock* find_another(const ChunkMap* map, uint32_t start) {
    return soon_wanted_ = look_up(map, start);
  }

  // Forgets all blocks.
  void clear();

  uint64_t count() const { return count_; }

 private:
  // Bucket i is in segment bit_width(i / kFirst): each but the first is as large as all before it.
  static constexpr uint32_t kFirst = 512;
  static constexpr int kSegments = 22;

  static bool is_at(const ChunkBlock* block, const ChunkMap* map, uint32_t start) {
    return block->start == start && block->map() == map;
  }
  ChunkBlock* look_up(const ChunkMap* map, uint32_t start) {
    ChunkBlock* block = bucket_of(hash(map, start));
    while (block != nullptr && !is_at(block, map, start)) block = block->same_bucket;
    return block;
  }

  // The upper bits of the product are mixed best, the lower ones choose the bucket.
  static uint32_t hash(const ChunkMap* map, uint32_t start) {
    const uint64_t product = (map->base / kBlockGranule + start) * 0x9E3779B97F4A7C15u;
    return static_cast<uint32_t>(product >> 32 ^ product >> 47);
  }

  ChunkBlock*& bucket(uint32_t i) {
    const auto segment = static_cast<int>(std::bit_width(i / kFirst));
    return segment == 0 ? first_[i] : segments_[segment][i - (kFirst << segment >> 1)];
  }

  uint32_t place_of(uint32_t h) const {
    const uint32_t i = h & mask_;
    return i < size_ ? i : i & mask_ >> 1;
  }
  ChunkBlock*& bucket_of(uint32_t h) { return bucket(place_of(h)); }

  void grow();

  uint32_t size_ = kFirst;
  uint32_t mask_ = kFirst - 1;  // the least power of two not below size_, minus 1
  uint64_t count_ = 0;
  ChunkBlock* soon_wanted_ = nullptr;  // find_first()'s last one, unless it was erased since
  ChunkBlock** segments_[kSegments] = {};
  ChunkBlock* first_[kFirst] = {};
};

// The records of one pool's blocks. They are taken from the process's arena a page at a time, so
// that splitting a block takes no lock that other pools need. Pages stay with the pool, also when
// it is used for another context.
struct BlockPage {
  static constexpr int kBlocks = 73;

  BlockPage* next;
  ChunkBlock blocks[kBlocks];
};
static_assert(sizeof(BlockPage) == 4096);

using BlockPages = Arena<BlockPage>;

class BlockRecords {
 public:
  void init(BlockPages* pages) { pages_ = pages; }

  // nullptr when the system has no memory left.
  ChunkBlock* take() {
    if (unused_ == nullptr) [[unlikely]]
      refill();
    ChunkBlock* block = unused_;
    if (block != nullptr) unused_ = block->next;
    return block;
  }

  void give_back(ChunkBlock* block) {
    block->next = unused_;
    unused_ = block;
  }

  // Makes sure that the next `n` calls of take() succeed. False if the system has no memory left.
  bool reserve(int n) {
    const ChunkBlock* block = unused_;
    while (n > 0 && block != nullptr) {
      block = block->next;
      --n;
    }
    return n == 0 || refill();
  }

  // All records are unused again.
  void reset() {
    unused_ = nullptr;
    for (BlockPage* page = first_; page != nullptr; page = page->next) add(page);
  }

 private:
  [[gnu::noinline]] bool refill() {
    BlockPage* page = pages_->take();
    if (page == nullptr) return false;
    page->next = first_;
    first_ = page;
    add(page);
    return true;
  }

  void add(BlockPage* page) {
    for (int i = BlockPage::kBlocks - 1; i >= 0; --i) give_back(&page->blocks[i]);
  }

  BlockPages* pages_;
  BlockPage* first_ = nullptr;
  ChunkBlock* unused_ = nullptr;
};

}  // namespace cistern::alloc
