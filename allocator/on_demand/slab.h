// SPDX-License-Identifier: Apache-2.0
// One slab: a 2 MiB chunk cut into blocks of whole 512-byte granules (the driver's own spacing).
// Nothing can be written into device memory, so the boundary tags live here, in at most 64 bytes a
// block. (A slab with eight blocks or fewer has 576 bytes in all.) While a slab has few blocks, its
// whole record is 512 bytes, beside those of other slabs. So a free among thousands of slabs of
// large blocks touches few cache lines and pages. For more blocks, the slab takes further records
// in pairs, and a table by address, which grows with them, finds them. From kMostInOrder blocks on
// it takes a SlabMap instead, which is faster and has 9 KiB for any number of blocks. A slab keeps
// what it took until it ends. Not thread-safe: the lock of the SlabPool that owns the slab protects
// it.
#pragma once

#include <bit>
#include <cstdint>

#include "allocator/base/records.h"
#include "allocator/base/source.h"
#include "allocator/chunk/chunk.h"

namespace cistern::alloc {

// Finds the records of a slab with many blocks. Bits per granule say where blocks start and which
// of these blocks are clean. From a start, one or two reads lead to the number of the block's
// record. Not thread-safe: the lock of the SlabPool that owns the slab protects it.
inline constexpr uint64_t kSlabBytes = uint64_t{2} << 20;
inline constexpr uint32_t kGranuleBytes = kDriverGranule;
inline constexpr uint32_t kGranules = kSlabBytes / kGranuleBytes;

class SlabMap {
 public:
  void clear();

  // add_clean(): a clean block starts at this granule. remove(): no block starts there any more.
  void add_clean(uint32_t start, uint16_t number) {
    Word& at = word(start);
    if (at.starts == 0) some_ |= uint64_t{1} << (start / 64);
    at.starts |= bit(start);
    at.clean |= bit(start);
    at.numbers[start % 64] = number;
  }
  void remove(uint32_t start) {
    Word& at = word(start);
    at.starts &= ~bit(start);
    at.clean &= ~bit(start);
    if (at.starts == 0) some_ &= ~(uint64_t{1} << (start / 64));
  }

  bool starts_at(uint32_t granule) const { return (word(granule).starts >> granule % 64 & 1) != 0; }
  bool clean_at(uint32_t start) const { return (word(start).clean >> start % 64 & 1) != 0; }
  void set_clean(uint32_t start) { word(start).clean |= bit(start); }
  void set_taken(uint32_t start) { word(start).clean &= ~bit(start); }

  // The record's number for the block that starts at this granule. There must be one.
  uint16_t number_at(uint32_t start) const { return word(start).numbers[start % 64]; }

  // The last block start below `granule` > 0; there is always one, at 0.
  uint32_t last_start_before(uint32_t granule) const;

 private:
  // All that is known of 64 granules lies together, so a free touches one place.
  struct Word {
    uint64_t starts;       // a block starts at this granule
    uint64_t clean;        // a clean block starts at this granule
    uint16_t numbers[64];  // the record of the block that starts there
  };
  static constexpr uint32_t kWords = kGranules / 64;

  static uint64_t bit(uint32_t granule) { return uint64_t{1} << (granule % 64); }
  Word& word(uint32_t granule) { return all_[granule / 64]; }
  const Word& word(uint32_t granule) const { return all_[granule / 64]; }

  uint64_t some_;  // the words in which a block starts
  Word all_[kWords];
};

// Memory for slabs whose blocks do not fit into the slab's own record: parts, and the maps of slabs
// with many blocks. The size of a part is a power of two. Parts of all sizes are cut from the same
// segments, so a slab with twenty blocks takes no page of its own. A part that is given back serves
// the next request of its size. Segments are never unmapped. Any thread; not on hot paths: a slab
// keeps what it took until it ends.
struct Block;

class SlabParts {
 public:
  static constexpr uint32_t kLeastBytes = 64;  // a cache line
  static constexpr uint32_t kMostBytes = 16384;

  // `bytes`: a power of two from kLeastBytes to kMostBytes. The contents are undefined. nullptr if
  // the system has no memory left.
  void* take(uint32_t bytes);
  void give_back(void* part, uint32_t bytes);
  // Gives back `count` parts: parts[0], parts[stride], ...
  void give_back(Block** parts, size_t count, size_t stride, uint32_t bytes);

  Arena<SlabMap> maps;

  void reset_after_fork() {
    mutex_.reset();
    maps.reset_after_fork();
  }

 private:
  static constexpr size_t kSegmentBytes = size_t{1} << 20;
  struct Link {
    Link* next;
  };
  static void push(Link*& free, void* part) {
    auto* link = static_cast<Link*>(part);
    link->next = free;
    free = link;
  }
  static constexpr int kSizes = std::countr_zero(kMostBytes / kLeastBytes) + 1;
  Link*& free_of(uint32_t bytes) { return free_[std::countr_zero(bytes / kLeastBytes)]; }

  Mutex mutex_;
  Link* free_[kSizes] = {};
  char* next_ = nullptr;
  size_t left_ = 0;
};

struct Slab;

struct alignas(32) Block {  // never across two cache lines
  Slab* slab;
  Block* next;  // in a bin, among the freed, or unused records of the slab
  union {
    Block* prev;     // clean: in its bin
    uint64_t stamp;  // freed: see FreedQueue; live: the Epoch in which it was handed out
  };
  uint32_t requested : 24;  // live: requested bytes; freed or kept: those it was last live with
  uint32_t state : 8;
  uint16_t start;
  uint16_t granules;  // of an unused record: its number

  BlockState is() const { return static_cast<BlockState>(state); }
  void become(BlockState s) { state = static_cast<uint8_t>(s); }
};
static_assert(sizeof(Block) == 32);

inline uint64_t bytes_of(const Block* block) { return uint64_t{block->granules} * kGranuleBytes; }

struct alignas(512) Slab {
  static constexpr uint32_t kFew = 12;
  static constexpr uint32_t kMostInOrder = 384;
  static constexpr uint16_t kOwnHalf = 8;

  Chunk* chunk;  // also the Arena's link: written only under the pool's lock while in use
  uint64_t base;
  union {
    // For each block, by address: start << 16 | the record's number. kNone behind the last one.
    uint32_t* order;
    SlabMap* map;  // where `half` is 0
  };
  Block** pairs;  // record n is pairs[n / 2][n % 2]; nullptr: all are in records[]
  Block* unused;  // records given back
  SlabParts* parts;
  uint16_t live;     // blocks the program holds
  uint16_t waiting;  // blocks freed and not yet clean
  uint16_t filling;  // blocks that are taken out to be filled
  uint16_t numbers;  // of records ever used
  uint16_t half;     // half of the entries that fit into `order`; 0: there is a map instead
  uint16_t count;    // entries in order
  uint16_t last;     // the entry that was looked up last: often the next one as well
  uint16_t clean;    // with few blocks: a bit for each of records[] that is a clean block
  uint32_t own_order[2 * kOwnHalf];
  Block records[kFew];

  static Slab* of(const Block* block) { return block->slab; }

  // open(): makes the whole slab one clean block and returns it. close(): gives back the memory
  // that the slab has taken since.
  Block* open(Chunk* owner);
  void close();

  // Cuts a clean block that is in no bin after `granules`; the block is no longer clean. The rest,
  // if any, becomes a clean block of its own and is returned. If there is no memory for the rest's
  // record, the block keeps the rest, and the result is nullptr.
  Block* split(Block* block, uint32_t granules);

  // The clean neighbours of a block, or nullptr.
  Block* clean_before(const Block* block);
  Block* clean_after(const Block* block);

  // Joins two neighbours that are in no bin into the first. Its clean mark does not change. The
  // second's record becomes unused.
  void join(Block* first, Block* second);

  void set_clean(Block* block);

  // live_at(): the live block that starts at `address`, or nullptr. live_around(): the one that
  // contains it.
  Block* live_at(uint64_t address);
  Block* live_around(uint64_t address);

  // The block that starts at this granule. There must be one.
  Block* starting_at(uint32_t granule);

  uint64_t address(const Block* block) const {
    return base + uint64_t{block->start} * kGranuleBytes;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kAtATime = 16;  // records per take of a slab with a map; others: 2

  bool few() const { return pairs == nullptr; }
  bool mapped() const { return half == 0; }
  uint32_t pairs_bytes() const;
  uint32_t order_bytes() const { return half * 2u * uint32_t{sizeof *order}; }

  Block* numbered(uint32_t number);
  Block* new_record();
  bool add_records();
  Block* take_records(uint32_t more);
  bool extend_pairs();
  bool make_room_in_order();
  bool spread();

  uint32_t position(uint32_t granule);
  bool starts(uint32_t position, uint32_t granule) const {
    return order[position] >> 16 == granule;
  }
  Block* at(uint32_t position);
  Block* clean_beside(const Block* block, int32_t side);
  void insert(uint32_t position, const Block* block, uint32_t number);
  void remove_from_order(const Block* first, Block* second);
};
static_assert(sizeof(Slab) == 512);

// For allocator/chunk/pool_base.h and fill.h.
inline uint64_t address_of(const Block* block) { return Slab::of(block)->address(block); }
inline Slab* bookkeeping_of(const Block* block) { return Slab::of(block); }
inline uint64_t asked_of(const Block* block) { return block->requested; }
inline void forget_asked(Block* block) { block->requested = 0; }

// The bookkeeping of slabs. Any thread; not on hot paths.
class SlabArena {
 public:
  // nullptr when the system has no memory left.
  Slab* take() {
    Slab* slab = slabs_.take();
    if (slab != nullptr) slab->parts = &parts_;
    return slab;
  }
  void give_back(Slab* slab) {  // one that was opened
    slab->close();
    slabs_.give_back(slab);
  }
  void reset_after_fork() {
    slabs_.reset_after_fork();
    parts_.reset_after_fork();
  }

 private:
  Arena<Slab> slabs_;
  SlabParts parts_;
};

}  // namespace cistern::alloc
