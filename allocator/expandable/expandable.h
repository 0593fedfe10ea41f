// SPDX-License-Identifier: Apache-2.0
// The strategy of GE_USE_STATIC_MEMORY=3, and the base of that of 4 (graph_arena/graph_arenas.h).
// Addresses are reserved once. Physical units are mapped behind them when they are first needed,
// and stay there when their blocks are freed. If a request finds no contiguous clean memory, clean
// units from elsewhere are mapped side by side for it. So a request fails only if it needs more
// units than remain beside those that hold a byte of the program's.
//
//   large    requests of a unit and more own whole units (blocks of whole units in a BlockPool)
//   small    the rest share units of their own (blocks of 512 bytes and more in another one)
//   an arena requests of any size that name it (Request::arena), side by side in units of its own.
//            It takes its known size at once, and keeps it: other pools ask the source for new
//            units before they take units from an arena
//   a range  addresses of one pool: one Chunk (Role::range) with a ChunkMap, kept until the context
//            ends. It has as many addresses as the memory has bytes. If no hole in it is long
//            enough, the pool gets another range
//
// The way of a request: contiguous clean memory, without a call of the source -> on a miss, the gap
// that needs the fewest units, filled with clean units from elsewhere, then with new ones. Only
// clean memory is unmapped (unmapping is not ordered by streams), and nothing here waits for work.
//
// Any thread. Memory that moves is in the hands of one thread (BlockState::moving). Threads that
// miss at the same time wait a moment for each other, because the memory that one of them takes may
// be enough for several. No lock is held while the source is called.
#pragma once

#include <algorithm>
#include <atomic>

#include "allocator/base/ledger.h"
#include "allocator/base/os.h"
#include "allocator/base/units.h"
#include "allocator/chunk/chunk_supply.h"
#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/reclaim/idle_release.h"

namespace cistern::alloc {

// Separates threads that move units from a thread that changes access to mapped memory, because
// nobody knows the next address of a unit that is being moved. Several threads may move units at
// the same time. A thread that changes access waits for them and keeps new ones out. Each side
// waits only while the other makes driver calls. A thread must not enter as a mover twice: the
// second entry could wait for its own first one. Any thread; all state is atomic.
class MoveGate {
 public:
  class Moving {
   public:
    explicit Moving(MoveGate& gate) : gate_(gate) {
      while (!gate_.enter()) os::wait_while([&] { return gate_.looking_.load() != 0; });
    }
    ~Moving() { gate_.moving_.fetch_sub(1); }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;

   private:
    MoveGate& gate_;
  };

  class Looking {
   public:
    explicit Looking(MoveGate& gate) : gate_(gate) {
      gate_.looking_.fetch_add(1);
      os::wait_while([&] { return gate_.moving_.load() != 0; });
    }
    ~Looking() { gate_.looking_.fetch_sub(1); }
    Looking(const Looking&) = delete;
    Looking& operator=(const Looking&) = delete;

   private:
    MoveGate& gate_;
  };

  void reset_after_fork() {
    moving_.store(0);
    looking_.store(0);
  }

 private:
  bool enter() {
    moving_.fetch_add(1);
    if (looking_.load() == 0) return true;
    moving_.fetch_sub(1);
    return false;
  }

  std::atomic<int> moving_{0}, looking_{0};
};

// How many bytes of clean memory were not needed, and for how long. It is one amount for a whole
// pool, because memory that serves any request has no age of its own. Written by allocations and by
// one sweep at a time (allocator/idle_work.h). If two threads write at once, one note is lost, and
// memory stays a tick longer or shorter.
class LowWater {
 public:
  void init() {
    lowest_.set(UINT64_MAX);
    unneeded_ = 0;
    since_ = offered_ = kNotSeen;
  }

  // An allocation left `clean` bytes clean.
  void note(uint64_t clean) {
    if (clean < lowest_.get()) lowest_.set(clean);
  }

  // For a sweep. Returns the bytes that were clean all the time, and for how many ticks; from age
  // `due` on they may go. If they have not gone by the next tick, their age begins anew, because
  // they hide memory that has become clean since.
  IdleChunks see(Tick now, uint64_t clean, uint32_t due) {
    const uint64_t lowest = std::min(lowest_.get(), clean);
    lowest_.set(clean);
    if (offered_ != kNotSeen && offered_ != now) since_ = offered_ = kNotSeen;
    unneeded_ = since_ == kNotSeen ? lowest : std::min(unneeded_, lowest);
    if (unneeded_ == 0) {
      since_ = offered_ = kNotSeen;
      return {};
    }
    if (since_ == kNotSeen) since_ = now;
    const uint32_t old = age(now, since_);
    if (old >= due) offered_ = now;
    return {unneeded_, old};
  }

  // `bytes` of the unneeded memory are gone.
  void released(uint64_t bytes) { unneeded_ -= std::min(unneeded_, bytes); }

 private:
  Counter lowest_;
  uint64_t unneeded_ = 0;
  Tick since_ = kNotSeen, offered_ = kNotSeen;
};

class Expandable : public KeepsIdleMemory {
 public:
  static constexpr uint64_t kMostUnpublished = ChunkPools::kMostUnpublished;
  static constexpr unsigned kMostArenas = 4;  // from 1 on

  // `sizes`: `first` is what it takes at its first request, `later` the least that it grows by, in
  // bytes; 0: as much as needed.
  void init(SharedChunks* shared, BlockArenas* arenas, ChunkSupply* supply, MemorySource* source,
            const DeviceParts& device, uint32_t owner, const ChunkSizes& sizes);

  bool take_clean(Request& request);
  // For groups (chunk_pools/groups.h). A request with Request::room shares units, whatever its
  // size. take_same() is always false, because freed memory serves any size here.
  bool take_clean_with_room(Request& request) { return take_clean(request); }
  bool take_same(Request&) { return false; }
  // Serves the request with clean units from elsewhere, and new ones if those are too few. Returns
  // a code of the source.
  int take_fresh(Request& request);
  int take_fresh_of_any_size(Request& request, Step* step) {
    *step = Step::returned;
    return take_fresh(request);
  }
  bool can_ask_for_less() const { return false; }
  // Serves the request with clean units from elsewhere only. False if they are too few.
  bool take_scattered(Request& request);
  bool take_from_anywhere(Request& request, Step*) {
    return take_clean(request) || take_scattered(request);
  }
  bool worth_waiting(const Request&) const { return true; }
  uint64_t most_pools() const { return most_pools_; }

  // Call it before requests name the arena. False if there is no memory for bookkeeping: then no
  // request may name it.
  bool begin_arena(unsigned number);
  BlockPool* arena(unsigned number) const {
    return pools_[kLarge + number].load(std::memory_order_acquire);
  }
  // The context has ended, and all pools were forgotten.
  void forget_arenas() { ledger_->arena_bytes.sub(arena_bytes_.exchange(0)); }

  // For chunks of Role::range, as ChunkPools.
  BlockPool* pool_of(const Chunk* chunk) {
    const uint8_t number = chunk->at().shard();
    return number < kPools ? pools_[number].load(std::memory_order_acquire) : nullptr;
  }
  // Releases units of freed blocks that are known outside the process. Without `all`, only in pools
  // where BlockPool::look_for_known(). False if nothing went.
  [[gnu::cold]] bool release_known(bool all);
  bool find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);
  bool mark_exported(const Chunk* chunk, uint64_t address);
  // Calls visit(units, count, offset) with the units in which the live block around `address` lies,
  // and the block's offset in the first of them. `visit` may call the source; no unit moves
  // meanwhile. False if there is no live block.
  template <typename Visitor>
  bool visit_units_of(const Chunk* chunk, uint64_t address, Visitor visit) {
    const MoveGate::Looking looking(gate_);
    uint64_t start, bytes;
    if (!find(chunk, address, &start, &bytes)) return false;
    const uint64_t unit = units_.unit_bytes(), place = start - chunk->base();
    const uint64_t first = place / unit, last = (place + bytes - 1) / unit;
    visit(&chunk->map()->units[first], static_cast<uint32_t>(last - first + 1), place % unit);
    return true;
  }
  bool fills(const Chunk* chunk) {
    const BlockPool* pool = pool_of(chunk);
    return pool != nullptr && pool->fills();
  }

  void fill_freed() {
    for_each_pool([this](BlockPool& pool) { fill_freed(pool); });
  }
  void refresh(bool) {
    for_each_pool([this](BlockPool& pool) { pool.refresh(shared_->reclaim); });
  }

  // Releases all clean units, and those of freed blocks that are known outside the process. False
  // if none went.
  bool release_units();
  // Only those known outside the process.
  bool release_known_units() { return release_known(/*all=*/true); }

  // The pools have no chunks: only the chunk layer has some.
  void collect_all(ChunkList*) {}
  void collect_clean(ChunkList*) {}
  void refresh_chunks() { supply_->cache.refresh(shared_->reclaim); }

  // For idle release: the chunk layer's idle chunks, and the bytes of units that were clean all the
  // time (LowWater).
  IdleChunks see_idle(Tick now);
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX) {
    supply_->cache.collect_aged(now, least, out, most);
  }
  uint64_t release_aged_units(Tick now, uint32_t least);
  uint64_t unit_bytes() const { return units_.unit_bytes(); }

  // Calls visit(address, bytes) for each run of addresses with memory behind it. `visit` may call
  // the source; no unit moves meanwhile.
  template <typename Visitor>
  void for_each_mapped(Visitor visit) {
    const MoveGate::Looking looking(gate_);
    for_each_pool([&](BlockPool& pool) {
      uint64_t address = 0, bytes;
      while (pool.next_mapped(&address, &bytes)) {
        visit(address, bytes);
        address += bytes;
      }
    });
  }

  void forget(Chunk* chunk);  // its context is gone

  template <typename Visitor>
  void for_each_pool(Visitor visit) {
    for (auto& slot : pools_) {
      if (BlockPool* pool = slot.load(std::memory_order_acquire)) visit(*pool);
    }
  }
  template <typename Visitor>
  void for_each_pool(Visitor visit) const {
    for (const auto& slot : pools_) {
      const BlockPool* pool = slot.load(std::memory_order_acquire);
      if (pool != nullptr) visit(*pool);
    }
  }
  void reset_after_fork() {
    growing_.store(false, std::memory_order_relaxed);
    reserving_.store(false, std::memory_order_relaxed);
    gate_.reset_after_fork();
  }

 private:
  static constexpr int kSmall = 0, kLarge = 1, kFirstArena = 2, kPools = kFirstArena + kMostArenas;
  // The most units in one call of the source; the moving thread has them on its stack.
  static constexpr uint32_t kAtOnce = 64;
  // No range of addresses could be reserved. Not a code of the source.
  static constexpr int kNoAddresses = -2;

  class Turn;
  class Ahead;
  // Which pools give clean units to another pool. spare: all except other pools' arenas. all:
  // arenas too.
  enum class Givers : uint8_t { spare, all };
  // The state of putting memory behind a gap.
  struct Filling {
    BlockPool& pool;
    const BlockPool::Gap& gap;
    uint32_t fresh;  // new units that are still needed
    bool new_ones;   // new units may be created
    Givers from;     // pools from which units may move
    uint32_t filled = 0, created = 0;
    int code = kOutOfMemory;  // the reason if the gap is not filled
  };

  // Whether the request gets whole units of its own.
  bool large(const Request& request) const {
    return request.bytes >= units_.unit_bytes() && request.room == 0 && !request.in_arena();
  }
  int number_for(const Request& request) const {
    if (request.in_arena()) [[unlikely]]
      return kLarge + request.arena->pool;
    return large(request) ? kLarge : kSmall;
  }
  BlockPool* pool_for(const Request& request) {
    return pools_[number_for(request)].load(std::memory_order_acquire);
  }
  // The pool that holds units taken ahead of need.
  BlockPool* pool_ahead(const Request& request) {
    const int number = request.in_arena() ? number_for(request) : kLarge;
    return pools_[number].load(std::memory_order_acquire);
  }
  bool is_arena(const BlockPool& pool) const;
  int number_of(const BlockPool& pool) const;
  template <typename Visitor>
  void for_each_giver(Givers from, const BlockPool* taker, Visitor visit) {
    for_each_pool([&](BlockPool& pool) {
      if (from == Givers::all || &pool == taker || !is_arena(pool)) visit(pool);
    });
  }
  // Bytes of the block behind the request: Request::room, or the rest of its last unit.
  uint64_t room_of(const Request& request) const {
    if (!large(request)) return request.room;
    return round_up(request.bytes, units_.unit_bytes()) - request.bytes;
  }
  bool fill_freed(BlockPool& pool);
  int take_with(Request& request, bool new_ones);
  bool take_first(const Request& request);
  int take_moved(BlockPool& pool, Request& request, bool new_ones);
  void take_step(const Request& request, uint64_t taken);
  void take_ahead(BlockPool& pool, uint64_t bytes, bool reuses);
  bool begin_pool(int number);
  bool open_gap(BlockPool& pool, uint32_t granules, BlockPool::Gap* gap);
  bool add_range(BlockPool& pool, uint64_t bytes);
  bool enter_range(BlockPool& pool, uint64_t address, uint64_t size);
  void fill(Filling& filling);
  uint32_t next_units(Filling& filling, Unit* units, uint32_t most, bool* is_new);
  void note_moved_unfilled(BlockPool& to);
  uint32_t gather_units(Unit* units, uint32_t count, Givers from, const BlockPool* taker);
  uint32_t take_away(BlockPool& pool, Unit* units, uint32_t most);
  Unit* units_behind(const ChunkBlock* block) const;
  uint32_t clean_units(Givers from, const BlockPool* taker);
  IdleChunks see_idle_units(int number, Tick now);
  void note_low_water(int number);
  void count_arena(const BlockPool& pool, uint64_t more, uint64_t less);
  uint32_t give_back_units(BlockPool& pool, uint32_t most);
  uint32_t give_back_units(uint32_t most);
  bool give_up(uint64_t address, Unit* units, uint32_t count);
  template <typename Use>
  uint32_t empty(BlockPool& pool, ChunkBlock* block, Use use);
  uint32_t release_block(BlockPool& pool, ChunkBlock* block);

  SharedChunks* shared_;
  BlockArenas* arenas_;
  ChunkSupply* supply_;
  Ledger* ledger_;
  Garbage* garbage_;
  uint64_t memory_bytes_;  // of the device; 0: not known
  uint32_t owner_, party_;
  unsigned most_pools_;
  ChunkSizes sizes_;
  UnitSupply units_;
  LowWater low_water_[kPools];
  MoveGate gate_;
  std::atomic<bool> growing_{false};    // a thread takes or moves units
  std::atomic<bool> reserving_{false};  // a thread reserves addresses
  std::atomic<BlockPool*> pools_[kPools] = {};
  std::atomic<uint64_t> arena_bytes_{0};
};

}  // namespace cistern::alloc
