// SPDX-License-Identifier: Apache-2.0
// The record of one chunk, i.e. of one driver allocation, which is handed out whole, cut into
// blocks, or idle. Any thread may find a record through the index without a lock, and the record
// may have been recycled since (records live in an Arena). So every field that such a reader looks
// at is atomic, and it must check its conclusion again under the lock of the pool that owns the
// chunk.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/records.h"
#include "allocator/reclaim/tickets.h"
#include "config/policy.h"

namespace cistern::alloc {

struct ChunkMap;
struct Slab;

enum class Role : uint8_t {
  whole,     // live
  direct,    // live, never pooled: its free goes to the driver
  slab,      // cut into blocks by the default strategy
  split,     // cut into blocks by a chunk strategy
  range,     // addresses, with units behind some of them (allocator/expandable)
  planned,   // blocks where a plan puts them (allocator/plan_arena.h)
  waiting,   // freed, but earlier work, or a graph, may still use it
  idle,      // clean, ready to be handed out
  released,  // between two owners, or on its way back to the driver
};

// Whether a chunk with this role is cut into blocks, and not handed out whole.
constexpr bool cuts_blocks(Role role) {
  return role == Role::slab || role == Role::split || role == Role::range || role == Role::planned;
}

// The owner, shard and role of a chunk, in one word. So a reader without a lock sees parts that
// belong together. Under the lock of the pool that it names, one comparison shows whether the chunk
// still belongs to that pool.
class Place {
 public:
  constexpr Place() = default;
  // `owner`: the number of the context's pool. `shard`: the part of it that cuts the chunk into
  // blocks.
  constexpr Place(uint32_t owner, Role role, uint8_t shard)
      : bits_(owner << 16 | uint32_t{shard} << 8 | static_cast<uint32_t>(role)) {}

  // The place of no chunk.
  static constexpr Place nowhere() { return {UINT16_MAX, static_cast<Role>(UINT8_MAX), UINT8_MAX}; }

  constexpr uint16_t owner() const { return static_cast<uint16_t>(bits_ >> 16); }
  constexpr uint8_t shard() const { return static_cast<uint8_t>(bits_ >> 8); }
  constexpr Role role() const { return static_cast<Role>(bits_ & UINT8_MAX); }
  constexpr Place as(Role role) const {
    return Place((bits_ & ~uint32_t{UINT8_MAX}) | static_cast<uint32_t>(role));
  }
  friend constexpr bool operator==(Place, Place) = default;

 private:
  constexpr explicit Place(uint32_t bits) : bits_(bits) {}

  uint32_t bits_ = 0;
};

struct Chunk {
  Chunk* next;  // in its bin, its waiting queue or a list to release; also the Arena's link
  std::atomic<uint64_t> address;
  std::atomic<uint64_t> bytes;     // requested from the driver
  std::atomic<Chunk*> next_start;  // index: next chunk that starts in the same page
  std::atomic<Place> place;
  Tick idle_since;             // while wholly idle; under the lock of its pool or cache
  std::atomic<bool> exported;  // another process or device may know it: never to be reused
  bool cut;                    // idle: it was cut into blocks when it was last in use
  // By role: requested bytes, Ticket, Slab*, ChunkMap*, previous in bin.
  std::atomic<uint64_t> detail;
  union {
    Chunk* older;   // idle chunks by age
    uint64_t born;  // whole, released: the Epoch in which it was handed out
                    // (allocator/reclaim/reclaim.h)
  };
  Chunk* younger;

  // Reads address and size as one pair: while set_range() runs, the record contains nothing.
  bool contains(uint64_t p) const {
    const uint64_t base = address.load(std::memory_order_acquire);
    const bool inside = p - base < bytes.load(std::memory_order_acquire);
    return inside && address.load(std::memory_order_relaxed) == base;
  }
  void set_range(uint64_t base, uint64_t size) {
    bytes.store(0, std::memory_order_relaxed);
    address.store(base, std::memory_order_release);
    bytes.store(size, std::memory_order_release);
  }

  uint64_t base() const { return address.load(std::memory_order_relaxed); }
  uint64_t size() const { return bytes.load(std::memory_order_relaxed); }
  Place at() const { return place.load(std::memory_order_relaxed); }
  Role is() const { return at().role(); }
  void move_to(Place where) { place.store(where, std::memory_order_relaxed); }
  void become(Role role) { move_to(at().as(role)); }

  // whole, direct
  uint64_t requested() const { return detail.load(std::memory_order_relaxed); }
  void set_requested(uint64_t n) { detail.store(n, std::memory_order_relaxed); }
  // waiting
  Ticket stamp() const { return detail.load(std::memory_order_relaxed); }
  void set_stamp(Ticket t) { detail.store(t, std::memory_order_relaxed); }
  // slab
  Slab* slab() const { return reinterpret_cast<Slab*>(detail.load(std::memory_order_relaxed)); }
  void set_slab(Slab* s) { detail.store(reinterpret_cast<uint64_t>(s), std::memory_order_relaxed); }
  // split, range, planned
  ChunkMap* map() const {
    return reinterpret_cast<ChunkMap*>(detail.load(std::memory_order_relaxed));
  }
  void set_map(ChunkMap* m) {
    detail.store(reinterpret_cast<uint64_t>(m), std::memory_order_relaxed);
  }
  // idle
  Chunk* previous() const {
    return reinterpret_cast<Chunk*>(detail.load(std::memory_order_relaxed));
  }
  void set_previous(Chunk* c) {
    detail.store(reinterpret_cast<uint64_t>(c), std::memory_order_relaxed);
  }
};

// The promise "at most 64 bytes of bookkeeping a block" holds for whole blocks too.
static_assert(sizeof(Chunk) <= 64);

// The state of a block that was cut from a chunk, in every strategy.
enum class BlockState : uint8_t {
  live,     // the program holds it
  waiting,  // freed: waiting, parked, garbage or in quarantine
  clean,    // ready to be handed out
  kept,     // clean, but only for requests of its own size (ReuseRule::same_size)
  room,     // reserved for the next member of a group (chunk_pools/groups.h)
  hole,     // addresses without memory (allocator/expandable)
  known,    // clean, but known outside the process: never reused, its units go back
  moving,   // one thread is mapping memory behind it, or unmapping it
};

// Chunks on their way from one place to another, linked by Chunk::next. A list belongs to one
// thread.
using ChunkList = LinkedList<Chunk>;

// Which freed memory serves which request (CISTERN_MEMORY_OPTIMIZE). Under every rule only clean
// memory serves a request.
//
//   about          not set: each strategy's own rule. A whole chunk serves requests that waste at
//                  most 1/8 of it; free space in chunks is merged and cut
//   same_size      level 0: a freed block serves only requests of its last requested size, to the
//                  byte. It is neither merged with its neighbours nor cut. Any other request takes
//                  memory that has not been in a block since its chunk came in, or a new chunk.
//                  If the source or the cap refuses the new chunk, memory is short. Each pool then
//                  forgets the sizes of its clean blocks, merges them, and serves any request that
//                  fits (Ledger::sizes_forgotten). Blocks that are freed later keep their sizes
//                  again. A chunk in which nothing is live goes back to the source as under
//                  `about`. It is not cut into other blocks before memory is short (Chunk::cut)
//   any_that_fits  level 1: exactly the smallest free block or chunk that is large enough, however
//                  much of it is wasted. Small requests are cut from slabs here too, and a chunk
//                  that the program held whole serves only whole requests
enum class ReuseRule : uint8_t { about, same_size, any_that_fits };

inline ReuseRule reuse_rule(const config::Policy& policy) {
  if (!policy.memory_optimize.set) return ReuseRule::about;
  return policy.memory_optimize == config::ReuseLevel::kSameSize ? ReuseRule::same_size
                                                                 : ReuseRule::any_that_fits;
}

}  // namespace cistern::alloc
