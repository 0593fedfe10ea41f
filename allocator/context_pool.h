// SPDX-License-Identifier: Apache-2.0
// The pool of one context: the way of every request, whatever strategy organises the free space.
//
//   allocate: clean memory at hand -> else ask what became clean -> else wait for what is waiting,
//             as long as a driver call takes (longer with much memory waiting) -> else fresh memory
//             -> else return what is clean, then all we can, and try again
//   free:     to the waiting queue of its pool. Once much waits, the work so far is marked here,
//             not only by the next miss: what is launched later must not hold it back. What is
//             idle beyond the budget goes back to the driver here, or after a synchronisation,
//             never in an allocation: the driver's free may wait for the device, that does not
//             (with FLAGS_eager_delete_scope=false all this is put off: for work_in_background(),
//             or a miss)
//   sweep:    with FLAGS_free_idle_memory, once a tick (idle_release.h): what became clean is seen
//             as idle, and what was idle for the delay goes back; in frees, synchronisations and
//             work_in_background()
//
// Below it are the chunk layer (chunk_supply.h) and the strategy (strategy/). Any thread may call
// anything, also while forget_all() ends a context; none may come after it. No lock is held while
// the source is called.
#pragma once

#include "allocator/any_strategy.h"
#include "allocator/chunk/chunk_supply.h"

namespace cistern::alloc {

// Where the memory of a pool is; parts may be a moment apart.
struct Usage {
  uint64_t live, idle, waiting, parked, garbage, quarantined;

  Usage& operator+=(const Usage& other) {
    live += other.live;
    idle += other.idle;
    waiting += other.waiting;
    parked += other.parked;
    garbage += other.garbage;
    quarantined += other.quarantined;
    return *this;
  }
};

enum class Freed : uint8_t {
  foreign,  // not ours: the driver's to answer
  done,
  invalid,  // ours, but not the start of something the program holds
};

class ContextPool {
 public:
  static constexpr int kShards = OnDemand::kShards;

  // `owner` is the number find() users get back through Chunk::owner.
  // `sizes`: the strategy and its chunks.
  void init(Shared* shared, MemorySource* source, const DeviceParts& device, uint32_t owner,
            const ChunkSizes& sizes);

  // Memory for `bytes` > 0; a result code of the source. `shard`: the caller's thread, as a number
  // below kShards, or below kMostThreads for thread_local.
  int allocate(uint64_t bytes, unsigned shard, uint64_t* address);

  // The driver's own answer, counted but never pooled (while a capture is in progress); only where
  // the driver has no memory left, and the request is `pooled`, what is clean here.
  int allocate_direct(uint64_t bytes, unsigned shard, bool pooled, uint64_t* address);

  // For a request that the settings keep out of the pools: a driver allocation of its own, never
  // reused. Short of memory what is kept here goes back for it; what cannot, free blocks between
  // live ones, serves it at last.
  int allocate_unpooled(uint64_t bytes, unsigned shard, uint64_t* address);
  // That last step alone, once everything else was tried.
  int allocate_at_last(uint64_t bytes, unsigned shard, uint64_t* address);

  // `chunk` is what the index found for `address`. `code` is the source's result where the chunk
  // really went back, else kSuccess. `latest`: the ticket of a synchronisation that began after the
  // program had called, and covers all it did with the block.
  Freed free(Chunk* chunk, uint64_t address, int* code, Ticket latest = Reclaim::kNow);

  // The block the program holds around `address`: start and the size it asked for.
  bool find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);

  // Whether `address` is in a block the program holds: without a lock where chunks are whole.
  bool is_live(Chunk* chunk, uint64_t address);

  // The block at `address` became known outside the process: a whole one goes back to the driver
  // when it is freed; what is freed in a slab, or such a block in a larger chunk, is reused no
  // more, and the slab or chunk goes back with its last block. False when the program holds nothing
  // there.
  bool mark_exported(Chunk* chunk, uint64_t address);

  // The program waited for everything given to the context before this ticket was closed.
  void synchronised(Ticket ticket);

  // Gives back what exceeds the idle budget; for a moment at which the driver will not wait.
  void release_excess();

  // What the program's calls do for idle memory, should it make none for a long time. For a thread
  // of ours. True if there will be more to do.
  bool work_in_background();

  // Gives back everything the program does not hold; false if that was nothing. For a shortage.
  bool release_everything();

  // The context is gone and its memory with it: forgets everything without a call to the source.
  void forget_all();

  Usage usage() const;
  // Of what the program does not hold, the part that it could have: back in the driver's hands, or
  // here, where a chunk strategy cuts any size from it.
  uint64_t returnable_bytes();
  uint64_t largest_free();
  uint64_t allocations() const;
  uint64_t frees() const;
  // Bytes of small blocks that the Ledger does not know yet (it may also know too many).
  int64_t unpublished_live() const;
  void reset_after_fork();

 private:
  // allocate, step by step
  int serve(uint64_t bytes, unsigned shard, uint64_t* address);
  int allocate_filled(uint64_t bytes, unsigned shard, uint64_t* address);
  bool filled_ahead(uint64_t address);
  bool take_clean(Request& request) {
    return strategy_.visit([&](auto& strategy) { return strategy.take_clean(request); });
  }
  int take_fresh(Request& request);
  int take_fresh_of_any_size(Request& request, Step* step);
  int miss(Request& request);
  bool ask_for_clean();
  bool wait_for_clean(uint64_t limit_ns);
  bool wait_as_long_as_obtain(Request& request);
  int shortage(Request& request);
  int take_smaller_chunk(Request& request, Step* step);
  int find_memory(Request& request, Step* step);
  uint64_t changes() const;
  bool take_from_anywhere(Request& request, Step* step);
  bool release_clean();
  int take_what_becomes_clean(Request& request, uint64_t patience_ns, Step* step);
  int obtain_direct(Request& request);
  bool take_from_anywhere_now(Request& request);
  int hand_out(const Request& request, uint64_t* address);

  bool free_whole(Chunk* chunk, uint64_t address, int* code, Ticket latest);
  void mark_if_much_waits();
  [[gnu::noinline]] void do_extra_work();
  void flush_garbage();
  [[gnu::noinline]] void tidy();
  void defer();
  void merge(bool spare_too);
  void release_excess_now();
  void do_deferred(WorkedBy worked_by);
  void release_excess_if_over_budget();
  void release_clean_excess();
  void sweep_if_due();
  void sweep(WorkedBy worked_by);
  void release_aged(Tick now, WorkedBy worked_by);
  void garbage_released();
  void publish_idle(uint64_t bytes);
  bool in_hand() const;
  bool waiting_range(Ticket* oldest, Ticket* newest);
  uint64_t waiting_bytes() const;
  void count_whole(uint64_t bytes);

  Shared* shared_;
  MemorySource* source_;
  Ledger* ledger_;
  Garbage* garbage_;
  uint32_t owner_;
  Counter whole_live_, whole_allocations_, whole_frees_;
  Counter freed_unmarked_;  // bytes of whole blocks freed since the last mark made by a free
  // A free looks for something to tidy up from so many bytes idle or parked on.
  uint64_t tidy_from_;
  bool defers_;                        // the work of frees
  std::atomic<bool> deferred_{false};  // some was, since it was last done
  std::atomic<bool> sweeping_{false};
  std::atomic<Tick> swept_{kNotSeen};        // the tick of the last sweep
  std::atomic<uint64_t> idle_published_{0};  // what Ledger::idle_chunks knows of this pool
  ChunkSupply supply_;
  AnyStrategy strategy_;
};

}  // namespace cistern::alloc
