// SPDX-License-Identifier: Apache-2.0
// Chunks of one context that the program does not hold: freed and waiting or parked, or idle by
// size and by age. A freed chunk is kept here so that the next request of its size costs no driver
// call. Any thread: every function takes the cache's lock, and none calls the driver, so that they
// may be called from a free or an allocation alike.
#pragma once

#include <algorithm>

#include "allocator/base/ledger.h"
#include "allocator/base/mutex.h"
#include "allocator/base/size_bins.h"
#include "allocator/chunk/chunk.h"
#include "allocator/reclaim/freed_queue.h"
#include "allocator/reclaim/idle_release.h"
#include "allocator/reclaim/recent_peak.h"

namespace cistern::alloc {

struct ChunkBinTraits {
  static uint64_t size(const Chunk* c) { return c->size(); }
  static Chunk*& next(Chunk* c) { return c->next; }
  static Chunk* prev(const Chunk* c) { return c->previous(); }
  static void set_prev(Chunk* c, Chunk* p) { c->set_previous(p); }
};

struct ChunkLinks : NextLink<Chunk> {
  static uint64_t stamp(const Chunk* c) { return c->stamp(); }
  static void set_stamp(Chunk* c, uint64_t stamp) { c->set_stamp(stamp); }
  static uint64_t bytes(const Chunk* c) { return c->size(); }
};

class ChunkCache {
 public:
  // `owner`: what the chunks of this cache say of themselves. `garbage`: nullptr for none.
  void init(uint32_t owner, uint32_t party, Garbage* garbage, ReuseRule rule);

  // An idle chunk that serves `bytes` without taking more of the device than the driver itself
  // would have given: at least as large, the same number of driver pages, at most 1/8 lost. So
  // reuse can never make the program run out of memory earlier. nullptr if there is none. `role`:
  // Role::whole for the program, Role::released for a strategy. A chunk that a strategy will cut is
  // never the program's meanwhile, or a second free of its address would be taken for the first.
  Chunk* take(uint64_t bytes, Role role, Reclaim& reclaim);
  // The same for the program: of just this size; and the smallest that is large enough.
  Chunk* take_equal(uint64_t bytes, Reclaim& reclaim);
  Chunk* take_least(uint64_t bytes, Reclaim& reclaim);
  // The same, but any that is large enough: for a strategy that cuts it, with memory short.
  Chunk* take_any(uint64_t bytes, Reclaim& reclaim);
  // Memory is short: chunks that were cut serve as take() says, too, where the rule is
  // ReuseRule::same_size.
  void admit_cut();

  // The program frees a chunk. `not_live`: it does not hold one that starts at `address` (decided
  // here, so that of two racing frees one fails). `cached`: it waits to be clean. `give_up`: it
  // must not be reused; the caller releases it for the program. `chunk` is what the index said; it
  // may have another meaning by now. `latest`: FreedQueue::push(). `refreshes`: as refresh() would,
  // where the chunk is cached.
  enum class Freed : uint8_t { not_live, cached, give_up };
  Freed free(Chunk* chunk, uint64_t address, Reclaim& reclaim, uint64_t* requested, Ticket latest,
             bool refreshes);

  // A chunk that the driver would not take just now: it waits as if freed just now. An exported one
  // is kept apart and offered again with the next collection.
  void put_back(Chunk* chunk, Reclaim& reclaim);

  // Start and requested size of a chunk the program holds around `address`.
  bool find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);

  // Another process or device gets to know the chunk: its free will be a real one.
  bool mark_exported(Chunk* chunk, uint64_t address);

  // Chunks that are clean already (empty slabs, fresh ones that nobody needs after all).
  void add_idle(ChunkList* chunks);

  // Moves the oldest idle chunk into `out` if more than `keep` bytes are idle or parked. Half of
  // that is for idle ones: what is parked beyond leaves before them, and waits.
  void collect_idle(uint64_t keep, Reclaim& reclaim, ChunkList* out);
  // Moves the exported chunks into `out` that the driver did not take yet.
  void collect_refused(ChunkList* out);
  // What became clean since is idle from now on, so that idle_bytes() says it.
  void refresh(Reclaim& reclaim);

  // Memory is out: what is parked only waits from now on.
  void unpark_everything();

  // For a sweep at `now`: what is idle. Each chunk that is seen for the first time gets its age.
  IdleChunks see_idle(Tick now);
  // Moves the oldest idle chunk into `out`, if it is that old.
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX);

  // Moves everything that is idle into `out`.
  void collect_clean(Reclaim& reclaim, ChunkList* out);

  // Moves everything into `out`, also what earlier work may still use: only for the driver, whose
  // own free waits for that work.
  void collect_all(ChunkList* out);

  // Chunks the program has as a whole. take() and free() count what passes through the cache, these
  // two what comes from the source, or goes to it.
  void count_obtained(uint64_t requested);
  void count_released(uint64_t requested);
  uint64_t live() const { return live_.get(); }
  Counter allocations, frees;

  // Bytes of all chunks of the context, in this cache or not; and how much of them is not idle, or
  // was not within the last second. A chunk on its way to the source counts as not idle.
  Counter reserved;
  uint64_t in_use() const {
    const uint64_t idle = idle_or_parked_bytes();
    return reserved.get() - std::min(reserved.get(), idle);
  }
  void note_use() { recently_used.note(in_use()); }
  RecentPeak recently_used;
  // Chunks of the context that are idle in a pool of blocks are counted here; nullptr: there are
  // none.
  void count_idle_of(const Counter* bytes) { idle_in_pool_.store(bytes); }

  // The context is gone, in two steps: close() keeps everything where it is, and once nothing is
  // in_hand() forget_all() forgets it.
  void close();
  void forget_all();

  // How many threads have a chunk in hand, or are about to take one: out of the cache or the source
  // and not in its new place yet. A chunk that free() gives up counts until put_down().
  void pick_up() { in_hand_.fetch_add(1); }
  void put_down() { in_hand_.fetch_sub(1, std::memory_order_release); }
  int in_hand() const { return in_hand_.load(std::memory_order_acquire); }

  void reset_after_fork() { mutex_.reset(); }

  uint64_t idle_bytes() const { return idle_bytes_.get(); }
  uint64_t waiting_bytes() const { return freed_.waiting_bytes(); }
  uint64_t queued_bytes() const { return freed_.queued_bytes(); }
  uint64_t parked_bytes() const { return freed_.parked_bytes(); }
  uint64_t idle_or_parked_bytes() const {
    const Counter* in_pool = idle_in_pool_.load(std::memory_order_acquire);
    return idle_bytes() + parked_bytes() + (in_pool == nullptr ? 0 : in_pool->get());
  }
  uint64_t garbage_bytes() const { return freed_.garbage_bytes(); }
  // Idle, or only parked: clean, and free as soon as memory is short.
  uint64_t clean_bytes(Reclaim& reclaim);
  // Idle, waiting, parked and garbage as the driver counts them: whole driver pages.
  uint64_t returnable_bytes() const { return returnable_bytes_.get(); }
  // Exported chunks are still to be offered to the driver.
  bool any_refused() const { return refused_bytes_.get() != 0; }
  uint64_t largest_idle();
  bool newest_waiting(Ticket* ticket) const { return freed_.newest(ticket); }
  bool waiting_range(Ticket* oldest, Ticket* newest);

 private:
  bool is_live(Place place) const;
  bool may_serve(uint64_t bytes, const Reclaim& reclaim) const;
  void count_allocation(uint64_t requested);
  void count_free(uint64_t requested);
  template <typename Find>
  Chunk* take_found(uint64_t bytes, Role role, Reclaim& reclaim, Find find);
  void admit_cut_locked();
  // Idle, and in no bin: its size says nothing of the requests that it may serve.
  bool apart(const Chunk* chunk) const { return same_size_ && chunk->cut; }
  void count_freed(Chunk* chunk);
  void refresh_locked(Reclaim& reclaim);
  void collect_one_freed(Chunk* chunk, bool parked, ChunkList* out);
  void collect_one_idle(Chunk* chunk, ChunkList* out);
  void insert_idle(Chunk* chunk);
  void remove_idle(Chunk* chunk);
  void collect_refused_locked(ChunkList* out);

  Mutex mutex_;
  bool closed_ = false;
  std::atomic<int> in_hand_{0};
  uint32_t owner_ = 0;
  bool same_size_ = false;                    // ReuseRule
  SizeBins<Chunk, ChunkBinTraits, 44> bins_;  // to 2^48 bytes
  Chunk* oldest_idle_ = nullptr;
  Chunk* youngest_idle_ = nullptr;
  FreedQueue<Chunk, ChunkLinks> freed_;
  ChunkList refused_;  // exported, and the driver did not take them yet
  Counter live_, idle_bytes_, returnable_bytes_, refused_bytes_;
  std::atomic<const Counter*> idle_in_pool_{nullptr};
};

}  // namespace cistern::alloc
