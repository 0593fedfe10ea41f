// SPDX-License-Identifier: Apache-2.0
// Finds a block by its place (chunk and first granule), in constant time however many blocks there
// are. Linear hashing: one bucket is added for each block above their number, so that no insertion
// ever pays for all the others. Eight bytes a block. Not thread-safe: the lock of the BlockPool
// protects it.
#pragma once

#include <bit>

#include "allocator/base/arena.h"
#include "allocator/chunk_pools/chunk_block.h"

namespace cistern::alloc {

class BlockTable {
  // Of a table that may change, or of one that may not.
  static auto& bucket_in(auto& table, uint32_t i) {
    const auto segment = static_cast<int>(std::bit_width(i / kFirst));
    return segment == 0 ? table.first_[i] : table.segments_[segment][i - (kFirst << segment >> 1)];
  }

 public:
  void insert(ChunkBlock* block) {
    ChunkBlock*& bucket = bucket_of(hash(block->map(), block->start));
    block->same_bucket = bucket;
    bucket = block;
    if (++count_ > size_) [[unlikely]]
      grow();
  }

  void erase(const ChunkBlock* block) {
    ChunkBlock** link = &bucket_of(hash(block->map(), block->start));
    while (*link != block) link = &(*link)->same_bucket;
    *link = block->same_bucket;
    --count_;
  }

  // The block that starts at granule `start` of the chunk, or nullptr.
  ChunkBlock* find(const ChunkMap* map, uint32_t start) const {
    ChunkBlock* block = bucket_in(*this, place_of(hash(map, start)));
    while (block != nullptr && (block->start != start || block->map() != map)) {
      block = block->same_bucket;
    }
    return block;
  }

  // Forgets all blocks.
  void clear();

  uint64_t count() const { return count_; }

 private:
  // Bucket i is in segment bit_width(i / kFirst): each but the first is as large as all before it.
  static constexpr uint32_t kFirst = 512;
  static constexpr int kSegments = 22;

  // The upper bits of the product are mixed best, the lower ones choose the bucket.
  static uint32_t hash(const ChunkMap* map, uint32_t start) {
    const uint64_t product = (map->base / kBlockGranule + start) * 0x9E3779B97F4A7C15u;
    return static_cast<uint32_t>(product >> 32 ^ product >> 47);
  }

  ChunkBlock*& bucket(uint32_t i) { return bucket_in(*this, i); }

  uint32_t place_of(uint32_t h) const {
    const uint32_t i = h & mask_;
    return i < size_ ? i : i & mask_ >> 1;
  }
  ChunkBlock*& bucket_of(uint32_t h) { return bucket(place_of(h)); }

  void grow();

  uint32_t size_ = kFirst;
  uint32_t mask_ = kFirst - 1;  // the least power of two not below size_, minus 1
  uint64_t count_ = 0;
  ChunkBlock** segments_[kSegments] = {};
  ChunkBlock* first_[kFirst] = {};
};

// The records of one pool's blocks. They are taken from the process's arena a page at a time, so
// that splitting a block takes no lock that other pools need. Pages stay with the pool, also when
// it is used for another context. Not thread-safe: the lock of the BlockPool protects it.
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

  // So that the next `n` calls of take() cannot fail.
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
