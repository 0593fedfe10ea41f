// SPDX-License-Identifier: Apache-2.0
// One slab: a 2 MiB chunk cut into blocks of whole 512-byte granules (the driver's own spacing).
// Nothing can be written into device memory, so the boundary tags live here. While a slab has few
// blocks, its whole record is 512 bytes, side by side with those of other slabs, so that a free
// among thousands of slabs of large blocks touches few cache lines and pages. For more blocks it
// takes a ManyBlocks, and keeps that until the slab ends. Not thread-safe: the lock of the SlabPool
// that owns the slab protects it.
#pragma once

#include <cstdint>

#include "allocator/base/arena.h"
#include "allocator/chunk/block_state.h"
#include "allocator/chunk/chunk.h"
#include "allocator/on_demand/slab_map.h"

namespace cistern::alloc {

struct ManyBlocks;
struct Slab;

struct alignas(32) Block {  // never across two cache lines
  Slab* slab;
  Block* next;  // in a bin, among the freed, or unused records of the slab
  union {
    Block* prev;     // clean: in its bin
    uint64_t stamp;  // freed: see FreedQueue; live: the Epoch in which it was handed out
  };
  uint32_t requested : 24;  // live: bytes the program asked for
  uint32_t state : 8;
  uint16_t start;
  uint16_t granules;

  BlockState is() const { return static_cast<BlockState>(state); }
  void become(BlockState s) { state = static_cast<uint8_t>(s); }
};
static_assert(sizeof(Block) == 32);

inline uint64_t bytes_of(const Block* block) { return uint64_t{block->granules} * kGranuleBytes; }

using ManyArena = Arena<ManyBlocks, size_t{2} << 20>;

struct alignas(512) Slab {
  static constexpr uint32_t kFew = 13;
  static constexpr uint16_t kNone = UINT16_MAX;

  Chunk* chunk;  // also the Arena's link: written only under the pool's lock while in use
  uint64_t base;
  ManyBlocks* many;  // nullptr as long as there are few
  uint16_t live;     // blocks the program holds
  uint16_t waiting;  // blocks freed and not yet clean
  // Few blocks:
  uint16_t used;             // which of records[], as bits
  uint16_t clean;            // which of records[] are clean blocks, as bits
  uint16_t order[kFew + 1];  // start << 4 | record of each, by address; behind the last kNone

  // Many blocks:
  Block* unused;     // records given back
  uint32_t numbers;  // of records ever used; the first kFew are records[]
  uint16_t filling;  // blocks that are taken out to be filled
  ManyArena* arena;  // where `many` comes from

  Block records[kFew];

  static Slab* of(const Block* block) { return block->slab; }

  // Makes the whole slab one clean block and returns it.
  Block* open(Chunk* owner);

  // Cuts `granules` off the front of a clean block that is in no bin; it is clean no more. The
  // rest, if any, becomes a clean block of its own and is returned; the block keeps it where the
  // system has no memory for its record.
  Block* split(Block* block, uint32_t granules);

  // The clean neighbours of a block, or nullptr.
  Block* clean_before(const Block* block);
  Block* clean_after(const Block* block);

  // Joins two neighbours, neither in a bin, into the first, which is still as clean as it was; the
  // second's record becomes unused.
  void join(Block* first, Block* second);

  void set_clean(Block* block);

  // The live block that starts at `address`, or nullptr; and the one that contains it.
  Block* live_at(uint64_t address);
  Block* live_around(uint64_t address);

  // The block that starts at this granule; one must.
  Block* starting_at(uint32_t granule);

  uint64_t address(const Block* block) const {
    return base + uint64_t{block->start} * kGranuleBytes;
  }

 private:
  uint32_t position(uint32_t granule) const;
  bool starts(uint32_t position, uint32_t granule) const {
    return order[position] != kNone && order[position] >> 4 == granule;
  }
  Block* at(uint32_t position) { return &records[order[position] & 15]; }
  Block* clean_or_null(uint32_t position);
  Block* numbered(uint32_t number);
  uint16_t number(const Block* block) const;
  void set_taken(Block* block);
  Block* new_record();
  bool spread();
  void add_clean(Block* block);
  void add_to_few(const Block* block);
  void remove_start(Block* block);
  void remove_from_few(const Block* block);
};
static_assert(sizeof(Slab) == 512);

// For allocator/chunk/pool_base.h and gather.h.
inline uint64_t address_of(const Block* block) { return Slab::of(block)->address(block); }
inline Slab* bookkeeping_of(const Block* block) { return Slab::of(block); }

// What a slab of many blocks has beside its own records. Untouched parts take no memory.
struct ManyBlocks {
  uint64_t link;  // the Arena's, while unused
  SlabMap map;
  Block blocks[kGranules - Slab::kFew];
};

// The bookkeeping of slabs. Any thread; not on hot paths.
class SlabArena {
 public:
  Slab* take() {
    Slab* slab = slabs_.take();
    if (slab != nullptr) slab->arena = &many_;
    return slab;
  }
  void give_back(Slab* slab) {
    if (slab->many != nullptr) many_.give_back(slab->many);
    slab->many = nullptr;
    slabs_.give_back(slab);
  }
  void reset_after_fork() {
    slabs_.reset_after_fork();
    many_.reset_after_fork();
  }

 private:
  Arena<Slab> slabs_;
  ManyArena many_;
};

}  // namespace cistern::alloc
