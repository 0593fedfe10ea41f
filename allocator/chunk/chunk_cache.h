// SPDX-License-Identifier: Apache-2.0
// Chunks of one context that the program does not hold: freed and waiting or parked, or idle by
// size and by age. A freed chunk is kept here so that the next request of its size costs no driver
// call. Any thread: functions that look at chunks take the cache's lock. None calls the driver, so
// a free and an allocation may both call them.
#pragma once

#include <algorithm>

#include "allocator/base/ledger.h"
#include "allocator/base/size_bins.h"
#include "allocator/base/threads.h"
#include "allocator/chunk/chunk.h"
#include "allocator/reclaim/freed_queue.h"
#include "allocator/reclaim/idle_release.h"

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
  // `owner`: the context's number, in Place::owner() of its chunks. `party`: its number in Reclaim.
  // `garbage`: nullptr if no setting keeps any.
  void init(uint32_t owner, uint32_t party, Garbage* garbage, ReuseRule rule);

  // Takes an idle chunk for `bytes`; nullptr if there is none. The chunk has as many driver pages
  // as the driver would give for `bytes`, and at most 1/8 of it is wasted. So reuse never makes the
  // program run out of memory earlier. `role`: Role::whole for the program, Role::released for a
  // strategy that will cut it. The latter is never Role::whole in between: otherwise a second free
  // of its address would look like a valid one.
  Chunk* take(uint64_t bytes, Role role, Reclaim& reclaim);
  // For the program: a chunk of exactly this size; the smallest chunk that is large enough.
  Chunk* take_equal(uint64_t bytes, Reclaim& reclaim);
  Chunk* take_least(uint64_t bytes, Reclaim& reclaim);
  // For a strategy that cuts it, when memory is short: any chunk that is large enough.
  Chunk* take_any(uint64_t bytes, Reclaim& reclaim);
  // Memory is short: under ReuseRule::same_size, take() from now on also finds the chunks that were
  // cut.
  void admit_cut();

  // The program frees a chunk. `not_live`: the program holds no chunk that starts at `address`. The
  // lock decides this, so only one of two racing frees succeeds. `cached`: the chunk waits until it
  // is clean. `give_up`: it must not be reused, and the caller releases it for the program. `chunk`
  // is what the index returned; its record may have been recycled since. `latest`: see
  // FreedQueue::push(). `refreshes`: if the chunk is cached, also does what refresh() does.
  enum class Freed : uint8_t { not_live, cached, give_up };
  Freed free(Chunk* chunk, uint64_t address, Reclaim& reclaim, uint64_t* requested, Ticket latest,
             bool refreshes);

  // Takes back a chunk that the driver refused: it waits as if it had just been freed. An exported
  // chunk is kept apart, for collect_refused().
  void put_back(Chunk* chunk, Reclaim& reclaim);

  // Start and requested size of the live chunk around `address`; false if there is none.
  bool find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);

  // Another process or device gets to know the chunk: its free will go to the driver. False if
  // `address` is not in a live chunk.
  bool mark_exported(Chunk* chunk, uint64_t address);

  // Adds chunks that are already clean: empty slabs, and new chunks that no request needs after
  // all.
  void add_idle(ChunkList* chunks);

  // Moves the oldest idle chunk into `out` if more than `keep` bytes are idle or parked. At most
  // half of `keep` is for parked chunks: if it is exceeded, the oldest parked ones begin to wait
  // first.
  void collect_idle(uint64_t keep, Reclaim& reclaim, ChunkList* out);
  // Moves those exported chunks into `out` that the driver has refused so far.
  void collect_refused(ChunkList* out);
  // Waiting chunks that have become clean are idle from now on, and count in idle_bytes().
  void refresh(Reclaim& reclaim);

  // Memory is short: parked chunks wait from now on.
  void unpark_everything();

  // For a sweep at `now`: the idle chunks. Each idle chunk that no sweep has seen yet gets `now` as
  // its tick.
  IdleChunks see_idle(Tick now);
  // Moves the oldest idle chunk of at most `most` bytes into `out`, if its age is at least `least`
  // ticks.
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX);

  // Moves everything that is idle into `out`.
  void collect_clean(Reclaim& reclaim, ChunkList* out);

  // Moves every chunk into `out`, even those that earlier work may still use. Only for the driver,
  // whose free waits for that work.
  void collect_all(ChunkList* out);

  // Counts of whole chunks that the program holds. take() and free() count chunks that come from
  // the cache and go to it. These two count chunks that come from the source and go to it.
  void count_obtained(uint64_t requested);
  void count_released(uint64_t requested);
  uint64_t live() const { return live_.get(); }
  Counter allocations, frees;

  // reserved: bytes of all chunks of the context, in this cache or not. in_use(): those that are
  // neither idle nor parked. recently_used: the peak of in_use() within the last second. A chunk on
  // its way to the source counts as in use.
  Counter reserved;
  uint64_t in_use() const {
    const uint64_t idle = idle_or_parked_bytes();
    return reserved.get() - std::min(reserved.get(), idle);
  }
  void note_use() { recently_used.note(in_use()); }
  RecentPeak recently_used;
  // `bytes` counts the idle chunks in a pool of blocks of this context; nullptr: there is no such
  // pool.
  void count_idle_of(const Counter* bytes) { idle_in_pool_.store(bytes); }

  // The context is gone, in two steps. After close() nothing is taken out any more. Once in_hand()
  // is 0, forget_all() forgets all chunks.
  void close();
  void forget_all();

  // How many threads have a chunk in hand or are about to take one. A chunk is in hand from when it
  // leaves the cache or the source until it is in its new place. A chunk that free() gives up is in
  // hand until put_down().
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
  // Bytes of idle chunks, and of parked chunks that are otherwise clean: a shortage unparks those.
  uint64_t clean_bytes(Reclaim& reclaim);
  // Bytes of idle, waiting, parked and garbage chunks, each rounded up to whole driver pages.
  uint64_t returnable_bytes() const { return returnable_bytes_.get(); }
  // Whether collect_refused() would find a chunk.
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
  // An idle chunk that is in no bin, because under ReuseRule::same_size it serves no request by its
  // size.
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
  ChunkList refused_;  // exported chunks that the driver refused
  Counter live_, idle_bytes_, returnable_bytes_, refused_bytes_;
  std::atomic<const Counter*> idle_in_pool_{nullptr};
};

}  // namespace cistern::alloc
