// SPDX-License-Identifier: Apache-2.0
// One slab: a 2 MiB chunk cut into blocks of whole 512-byte granules (the driver's own spacing).
// Nothing can be written into device memory, so the boundary tags live here, as bits per granule:
// where blocks start and which of them are clean. What a slab of few blocks needs lies in one page
// (bits and the first hundred records): the cost of a random access is one TLB miss.
// A slab's bookkeeping is found from any of its records by masking the address.
// Not thread-safe: the lock of the SlabPool that owns the slab protects it.
#pragma once

#include <cstdint>

#include "allocator/chunk.h"

namespace cistern::alloc {

inline constexpr uint64_t kSlabBytes = uint64_t{2} << 20;
inline constexpr uint32_t kGranuleBytes = 512;
inline constexpr uint32_t kGranules = kSlabBytes / kGranuleBytes;
inline constexpr uint32_t kWords = kGranules / 64;

enum class BlockState : uint8_t { live, waiting, clean };

struct Block {
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
static_assert(sizeof(Block) == 24);

struct alignas(128 * 1024) Slab {
  static constexpr uint64_t kAlignment = 128 * 1024;  // of each Slab, hence of()

  Chunk* chunk;  // also the Arena's link: written only under the pool's lock while in use
  uint64_t base;
  uint32_t live;     // blocks the program holds
  uint32_t waiting;  // blocks freed and not yet clean
  Block* unused;
  uint64_t records;         // ever taken from blocks[]
  uint64_t words;           // which words of starts[] are not zero
  uint64_t starts[kWords];  // a block starts at this granule
  uint64_t clean[kWords];   // a clean block starts at this granule
  uint16_t only[kWords];    // the record of a word's block, where only one starts in it
  Block blocks[kGranules];
  uint16_t map[kGranules];  // the record by granule, for words in which several start

  static Slab* of(const Block* block) {
    return reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(block) & ~(kAlignment - 1));
  }

  // Makes the whole slab one clean block and returns it.
  Block* open(Chunk* owner);

  // Cuts `granules` off the front of a clean block that is in no bin; it is clean no more. The
  // rest, if any, becomes a clean block of its own and is returned.
  Block* split(Block* block, uint32_t granules);

  // The clean neighbours of a block, or nullptr.
  Block* clean_before(const Block* block);
  Block* clean_after(const Block* block);

  // Joins two neighbours, neither in a bin, into the first; the second's record becomes unused.
  void join(Block* first, Block* second);

  void set_clean(Block* block);

  // The live block that starts at `address`, or nullptr; and the one that contains it.
  Block* live_at(uint64_t address);
  Block* live_around(uint64_t address);

  // The block that starts at this granule; one must.
  Block* starting_at(uint32_t granule) {
    const uint32_t word = granule / 64;
    return &blocks[lone(word) ? only[word] : map[granule]];
  }

  uint64_t address(const Block* block) const {
    return base + uint64_t{block->start} * kGranuleBytes;
  }

 private:
  static bool test(const uint64_t* bits, uint32_t i) { return (bits[i / 64] >> (i % 64) & 1) != 0; }
  static void set(uint64_t* bits, uint32_t i) { bits[i / 64] |= uint64_t{1} << (i % 64); }
  static void clear(uint64_t* bits, uint32_t i) { bits[i / 64] &= ~(uint64_t{1} << (i % 64)); }

  bool lone(uint32_t word) const { return (starts[word] & (starts[word] - 1)) == 0; }
  uint32_t start_in(uint32_t word) const;
  uint32_t last_start_before(uint32_t granule) const;
  void add_start(const Block* block);
  void remove_start(uint32_t granule);
  Block* new_record();
  uint16_t number(const Block* block) const { return static_cast<uint16_t>(block - blocks); }
};
static_assert(sizeof(Slab) == Slab::kAlignment);

}  // namespace cistern::alloc
