// SPDX-License-Identifier: Apache-2.0
// The queue of one pool for freed blocks that may not be reused yet:
//
//   waiting  for earlier work (reclaim.h), in the order of the frees
//   parked   because a live graph may use its address (graph_lives.h)
//   garbage  kept back by a setting (garbage.h); once flushed, it waits
//
// Intrusive: T names its links through Links. Not thread-safe: the owner's lock protects it.
#pragma once

#include <algorithm>

#include "allocator/reclaim/garbage.h"
#include "allocator/reclaim/graph_lives.h"
#include "allocator/reclaim/reclaim.h"
#include "allocator/reclaim/tickets.h"

namespace cistern::alloc {

// Links: those of StampedList, and static uint64_t bytes(const T*).
template <typename T, typename Links>
class FreedQueue final : public GarbageQueue {
 public:
  // The program frees an item. `born`: Reclaim::epoch() when it was handed out. `latest`: a ticket
  // that covers all work that may touch the item, if the caller knows one, otherwise Reclaim::kNow.
  // Not used for garbage.
  [[gnu::always_inline]] void push(T* item, Epoch born, Reclaim& reclaim,
                                   Ticket latest = Reclaim::kNow) {
    if (reclaim.diverts(born)) [[unlikely]]
      return divert(item, born, reclaim, latest);
    wait_for(item, reclaim, latest);
  }

  // As push(), for an item that the pool had already freed: it never becomes garbage.
  void put_back(T* item, Epoch born, Reclaim& reclaim) {
    reclaim.graphs().parks(born) ? park(item, born, reclaim, Reclaim::kNow)
                                 : wait_for(item, reclaim, Reclaim::kNow);
  }

  // Reclaim::clean() for the pool's context.
  Ticket clean(const Reclaim& reclaim) const { return reclaim.clean(owner()); }

  // May be read without the owner's lock.
  bool has_clean(Ticket clean) const {
    const Ticket end = oldest_end_.load(std::memory_order_relaxed);
    return end != 0 && end - 1 <= clean;
  }

  // Takes the oldest waiting item out; there must be one (has_clean()).
  T* pop() {
    T* item = waiting_.pop();
    publish_oldest();
    waiting_bytes_.own_sub(Links::bytes(item));
    return item;
  }

  // As pop(), but only if the item fits and no other item waits; otherwise nullptr.
  template <typename Fits>
  T* pop_if_alone(Fits fits) {
    const T* item = waiting_.oldest();
    return item == waiting_.newest() && fits(item) ? pop() : nullptr;
  }

  // Whether an item that is freed now is clean at once, so it need not be pushed. Never true for
  // kNow, because no clean ticket is as late (Reclaim::join()).
  bool clean_when_freed(Epoch born, const Reclaim& reclaim, Ticket latest) const {
    return latest <= clean(reclaim) && !reclaim.diverts(born);
  }

  // Whether graphs have changed, so that unpark() may find something.
  bool parked_may_leave(Reclaim& reclaim) const { return parked_.may_leave(reclaim.graphs()); }

  // Parked items that no graph may use any more begin to wait, for the work of the last graph that
  // went.
  void unpark(Reclaim& reclaim) {
    GraphLives& graphs = reclaim.graphs();
    parked_.look(graphs, [&](T* item) {
      const Ticket stamp = std::max(newest_parked_, graphs.covers_gone());
      if (stamp > clean(reclaim)) reclaim.note_freed(owner(), stamp);
      wait_for_work(item, stamp);
    });
  }

  // While `too_much()`, the oldest parked item begins to wait, for the work before the last free,
  // as it would have without any graph.
  template <typename TooMuch>
  void unpark_while(TooMuch too_much) {
    parked_.leave_while(too_much, [this](T* item) { wait_for_work(item, newest_parked_); });
  }
  void unpark_everything() {
    unpark_while([] { return true; });
  }

  // Takes out every item for which `leaves(item, parked)` says so.
  template <typename Leaves>
  void remove_if(Leaves leaves) {
    const auto from = [&](StampedList<T, Links>& list, auto gone) {
      list.remove_if([&](T* item) {
        const uint64_t bytes = Links::bytes(item);
        const bool goes = leaves(item, false);
        if (goes) gone(bytes);
        return goes;
      });
    };
    from(waiting_, [this](uint64_t bytes) { waiting_bytes_.own_sub(bytes); });
    from(until_threshold_, [this](uint64_t bytes) { count_until_threshold(0, bytes); });
    from(until_synchronise_, [this](uint64_t bytes) { count_until_synchronise(0, bytes); });
    publish();
    parked_.remove_if([&](T* item) { return leaves(item, true); });
  }

  // The tickets of the oldest and the newest waiting free; false if none waits.
  bool range(Ticket* oldest, Ticket* newest) const {
    if (waiting_.oldest() == nullptr) return false;
    *oldest = Links::stamp(waiting_.oldest());
    *newest = Links::stamp(waiting_.newest());
    return true;
  }

  void clear() {
    waiting_ = until_threshold_ = until_synchronise_ = {};
    publish();
    parked_.clear();
    waiting_bytes_.set(0);
    if (garbage_ == nullptr) return;
    count_until_threshold(0, until_threshold_bytes_.get());
    count_until_synchronise(0, until_synchronise_bytes_.get());
  }

  // The functions below may be read without the owner's lock, and may miss what another thread
  // frees at that moment. newest(): the newest ticket of range(); false if nothing waits.
  bool newest(Ticket* ticket) const {
    const bool any = waiting_bytes() != 0;
    *ticket = newest_.load(std::memory_order_relaxed);
    return any;
  }
  // Bytes that wait; bytes of all frees that ever waited and were not clean from the beginning.
  uint64_t waiting_bytes() const { return waiting_bytes_.get(); }
  uint64_t queued_bytes() const { return queued_bytes_.get(); }
  uint64_t parked_bytes() const { return parked_.bytes(); }
  // With the lock: parked bytes that would be clean without any graph. If some may leave because a
  // graph went, this counts them only once the graph's work is done (unpark()).
  uint64_t clean_parked_bytes(const Reclaim& reclaim) const {
    const GraphLives& graphs = reclaim.graphs();
    const Ticket gone = parked_.may_leave(graphs) ? graphs.covers_gone() : 0;
    return std::max(newest_parked_, gone) <= clean(reclaim) ? parked_bytes() : 0;
  }

 private:
  // The queue must be in the order of its stamps. A later stamp than needed is never wrong.
  Ticket in_order(Ticket stamp) const {
    const T* newest = waiting_.newest();
    return newest == nullptr ? stamp : std::max(stamp, Links::stamp(newest));
  }

  // An item that is already clean needs no mark. Any other item needs no later ticket than the
  // known one.
  Ticket stamp_of_free(Reclaim& reclaim, Ticket latest) const {
    const bool known = latest != Reclaim::kNow;
    if (known && latest <= clean(reclaim)) return latest;
    const Ticket now = reclaim.stamp(owner());
    return known ? latest : now;
  }

  // Inlined, as push() is: every free comes here.
  [[gnu::always_inline]] void wait_for(T* item, Reclaim& reclaim, Ticket latest) {
    if (latest != Reclaim::kNow && latest <= clean(reclaim)) return wait_in_order(item, latest);
    queued_bytes_.own_add(Links::bytes(item));
    const Ticket now = reclaim.stamp(owner());
    latest == Reclaim::kNow ? wait(item, now) : wait_in_order(item, latest);
  }

  void wait_for_work(T* item, Ticket stamp) {
    queued_bytes_.own_add(Links::bytes(item));
    wait_in_order(item, stamp);
  }

  void wait(T* item, Ticket stamp) {
    if (waiting_.oldest() == nullptr) oldest_end_.store(stamp + 1, std::memory_order_relaxed);
    waiting_.append(item, stamp);
    newest_.store(stamp, std::memory_order_relaxed);
    waiting_bytes_.own_add(Links::bytes(item));
  }

  void wait_all(StampedList<T, Links>& items, uint64_t bytes) {
    waiting_.merge(items);
    publish();
    waiting_bytes_.own_add(bytes);
    queued_bytes_.own_add(bytes);
  }

  void publish_oldest() {
    const T* oldest = waiting_.oldest();
    oldest_end_.store(oldest == nullptr ? 0 : Links::stamp(oldest) + 1, std::memory_order_relaxed);
  }

  void publish() {
    publish_oldest();
    const T* newest = waiting_.newest();
    if (newest != nullptr) newest_.store(Links::stamp(newest), std::memory_order_relaxed);
  }

  void wait_in_order(T* item, Ticket stamp) { wait(item, in_order(stamp)); }

  void park(T* item, Epoch born, Reclaim& reclaim, Ticket latest) {
    newest_parked_ = std::max(newest_parked_, stamp_of_free(reclaim, latest));
    parked_.park(item, born, reclaim.graphs(), owner(),
                 [&](T* oldest) { wait_for_work(oldest, newest_parked_); });
  }

  [[gnu::noinline]] void divert(T* item, Epoch born, Reclaim& reclaim, Ticket latest) {
    using When = GarbageRules::When;
    if (reclaim.graphs().parks(born)) return park(item, born, reclaim, latest);
    const uint64_t bytes = Links::bytes(item);
    switch (garbage_ == nullptr ? When::off : garbage_->when()) {
      case When::at_threshold:
        until_threshold_.append(item, garbage_->stamp(owner()));
        return count_until_threshold(bytes, 0);
      case When::at_synchronise:
        until_synchronise_.append(item, garbage_->stamp(owner()));
        return count_until_synchronise(bytes, 0);
      case When::at_each_free:
        garbage_->flushed_one();
        break;
      case When::off:
        break;
    }
    wait_for(item, reclaim, latest);
  }

  void count_until_threshold(uint64_t more, uint64_t less) {
    until_threshold_bytes_.own_add(more - less);
    garbage_->count_until_threshold(more, less);
  }

  void count_until_synchronise(uint64_t more, uint64_t less) {
    until_synchronise_bytes_.own_add(more - less);
    garbage_->count_until_synchronise(more, less);
  }

  void survey(See see, void* state) override {
    const LockGuard guard(*pool_mutex_);
    for (T* item = until_threshold_.oldest(); item != nullptr; item = Links::next(item)) {
      see(state, Links::bytes(item), Links::stamp(item));
    }
  }

  void flush(const Cut& cut) override {
    const LockGuard guard(*pool_mutex_);
    uint64_t stay = 0;
    if (cut.bytes != 0) {
      until_threshold_.remove_if([&](T* item) {
        const bool stays = !cut.includes(Links::bytes(item), Links::stamp(item));
        if (stays) until_synchronise_.append(item, Links::stamp(item));
        if (stays) stay += Links::bytes(item);
        return stays;
      });
      count_until_threshold(0, stay);
      count_until_synchronise(stay, 0);
    }
    flush_rest();
  }

  uint64_t flush_freed_before(Ticket freed_before) override {
    const LockGuard guard(*pool_mutex_);
    StampedList<T, Links> flushed;
    uint64_t bytes = 0;
    while (until_synchronise_.oldest() != nullptr &&
           Links::stamp(until_synchronise_.oldest()) <= freed_before) {
      T* item = until_synchronise_.pop();
      flushed.append(item, Links::stamp(item));
      bytes += Links::bytes(item);
    }
    wait_all(flushed, bytes);
    count_until_synchronise(0, bytes);
    return bytes;
  }

  uint64_t flush_all() override {
    const LockGuard guard(*pool_mutex_);
    const uint64_t kept = until_synchronise_bytes_.get();
    wait_all(until_synchronise_, kept);
    count_until_synchronise(0, kept);
    return kept + flush_rest();
  }

  uint64_t flush_rest() {
    const uint64_t bytes = until_threshold_bytes_.get();
    wait_all(until_threshold_, bytes);
    count_until_threshold(0, bytes);
    return bytes;
  }

  StampedList<T, Links> waiting_, until_threshold_, until_synchronise_;
  Parked<T, Links> parked_;
  Ticket newest_parked_ = 0;
  // Of the waiting items: one more than the oldest stamp, or 0 if none waits; and the newest stamp.
  std::atomic<Ticket> oldest_end_{0}, newest_{0};
  Counter waiting_bytes_, queued_bytes_;
};

}  // namespace cistern::alloc
