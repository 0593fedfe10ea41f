// SPDX-License-Identifier: Apache-2.0
// Decides when a freed block is clean, i.e. when no earlier work can touch it any more. One object
// for the process; all pools use it.
//
// Frees are stamped with the open ticket. A ticket is closed when a synchronisation begins or an
// event is recorded, and the next one opens. A context has *passed* a ticket once it is known to
// have finished all work up to the moment when the ticket was closed. A context is *tied* to
// another one if its work may touch the other's memory. A block is clean when its own context and
// every context tied to it have passed its stamp:
//
//   touched()   a copy between the two was handed over: tied until the worker has passed it
//   reaches()   peer access: tied until it is disabled and the work of that time is done
//
// A tie delays only blocks that are freed after it began: its work cannot touch those freed before.
// So a free costs two loads, and an event covers every free of its context since the last event. A
// program that synchronises by itself causes no event. A context that has nothing to do with a
// block never delays it.
//
// The program's wait for a stream or an event proves nothing, because other streams go on, for
// example per-thread streams of other threads. If all streams were known, it would save one mark
// but add a cost to each wait.
//
// A block that a live graph may hold is parked first (graph_lives.h), and waits for earlier work
// afterwards.
//
// Contexts are numbered from 0 to kMaxContexts - 1; a number is used again once its context has
// left. stamp() and clean() are lock-free. mark() and poll() call the source. For each context one
// thread at a time does so; other callers of mark() wait a moment at most. join(), leave(),
// settle() and between_calls() wait until no thread calls the source, so the caller must not hold
// anything that such a call could need.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/ledger.h"
#include "allocator/base/source.h"
#include "allocator/base/threads.h"
#include "allocator/reclaim/graph_lives.h"
#include "allocator/reclaim/tickets.h"

namespace cistern::alloc {

class Reclaim {
 public:
  static constexpr int kMaxContexts = 256;

  // The ticket for a block of this context that is freed now. Call it under the lock of the block's
  // pool. Device work that the program handed over earlier must be ordered before this load, or the
  // event of a concurrent mark() might miss it. On x86 taking the lock is already a full barrier.
  Ticket stamp(uint32_t context) {
    const Ticket now = open();
    if (timelines_[context].freed_end.load(std::memory_order_relaxed) <= now) [[unlikely]]
      note_freed(context, now);
    return now;
  }

  // The open ticket. It covers all work that the program handed over before this call.
  Ticket open() const {
#if !defined(__x86_64__)
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    return open_.load(std::memory_order_seq_cst);
  }

  // The bytes of a context that may wait before a free waits for them. More may wait if much is
  // live (WaitingMemory).
  static constexpr uint64_t kWaitingBound = uint64_t{256} << 20;

  // Used as a ticket: all work that the program has handed over by now may touch the block.
  static constexpr Ticket kNow = ~Ticket{0};

  // Blocks of this context stamped with this ticket or an earlier one are clean.
  Ticket clean(uint32_t context) const {
    return timelines_[context].clean_end.load(std::memory_order_acquire) - 1;
  }

  // A synchronisation of one context: close() before it starts, passed() after it succeeded.
  Ticket close() { return open_.fetch_add(1, std::memory_order_seq_cst); }
  void passed(uint32_t context, Ticket ticket);

  // join(): a context appears; its number must not be in use. `was_there`: it existed before this
  // call, so its work may touch blocks that were freed earlier. leave(): the context is gone.
  void join(uint32_t context, MemorySource* source, bool was_there = false);
  void leave(uint32_t context);

  // touched(): `worker` was just handed work that may touch memory of `owner`; call it after the
  // driver took the work. reaches(): whether any work of `worker` may touch memory of `owner` from
  // now on.
  void touched(uint32_t owner, uint32_t worker);
  void reaches(uint32_t owner, uint32_t worker, bool on);
  // As reaches(), for a worker that existed before it joined. Since when it reaches `owner` is
  // unknown, so blocks that already wait now wait for it too.
  void reached_since_ever(uint32_t owner, uint32_t worker);

  // This context never hands over work: it has passed everything, and only contexts tied to it can
  // delay its blocks.
  void has_no_work(uint32_t context) {
    timelines_[context].passed_end.store(kEver, std::memory_order_release);
  }

  // copies_done(): the source knows without a mark that all work of `worker` that touched() noted
  // before ticket `end` was opened is done. only_marks_untie(): the source has lost track of some
  // of that work, so only marks end the ties noted so far.
  void copies_done(uint32_t worker, Ticket end);
  void only_marks_untie(uint32_t worker);

  // There is a context whose work cannot be followed: no block becomes clean any more. When memory
  // is short, freed memory still goes back to the driver, whose free waits for the work.
  void freeze() { frozen_.store(true, std::memory_order_release); }
  bool frozen() const { return frozen_.load(std::memory_order_acquire); }

  // Whether frees exist that no mark, and perhaps no synchronisation, covers yet. any_unmarked():
  // in any context; one load, for every submission. unmarked(): in this context. A thread that
  // clears any_unmarked must then check every context, and set it again if some frees stay
  // unmarked.
  bool any_unmarked() const { return any_unmarked_.load(std::memory_order_relaxed); }
  void set_any_unmarked(bool any) { any_unmarked_.store(any, std::memory_order_seq_cst); }
  bool unmarked(uint32_t context) const;

  // A graph has changed: parked blocks may leave, and then wait for the ticket
  // graphs().covers_gone(). The next submission marks it. Until it is clean, it counts as late.
  void parked_may_leave();
  // A block of this context waits for `ticket`. stamp() calls it with the open ticket.
  [[gnu::noinline]] void note_freed(uint32_t context, Ticket ticket);

  // The unmarked frees of this context are *late*: their mark will also cover later work.
  // any_late(): whether a late free is not clean yet.
  void unmarked_is_late(uint32_t context);
  bool any_late(uint32_t context) const;
  // Whether work of another context may touch this context's memory now. The other context's work
  // may go on for long.
  bool tied(uint32_t context);
  bool tied_to(uint32_t context, uint32_t worker);

  // Which blocks live graphs may hold. now() and diverts() are one load each.
  GraphLives& graphs() { return graphs_; }
  const GraphLives& graphs() const { return graphs_; }
  void reset_after_fork() {
    ties_mutex_.reset();
    graphs_.reset_after_fork();
  }
  Epoch epoch() const { return graphs_.now(); }
  bool diverts(Epoch born) const { return graphs_.diverts(born); }

  // Marks the work of the context and of those tied to it, unless that is done already. After that
  // every block with a stamp up to `newest` will become clean without a synchronisation. False if
  // some work cannot be marked now. `at_once`: also queries the new marks, and does not wait for
  // another thread that calls the source; false then.
  bool mark(uint32_t context, Ticket newest, bool at_once = false);
  // As mark(), for everything that was freed so far.
  bool mark_freed(uint32_t context);

  // Queries the oldest marks of the context and of those tied to it. True if clean() moved.
  bool poll(uint32_t context);

  // Whether marks of the context are outstanding.
  bool any_outstanding(uint32_t context) const {
    return timelines_[context].outstanding.load(std::memory_order_acquire) != 0;
  }

  // Polls until clean() reaches `target`; false after `limit_ns`, or when the context left. Of the
  // threads that wait for a context, one polls with pauses, and the others sleep.
  bool wait(uint32_t context, Ticket target, uint64_t limit_ns);

  // Returns once no call to the context's source is under way.
  void settle(uint32_t context);

  // Calls action() once no call to the context's source is under way. No such call is made before
  // action() returns.
  template <typename Action>
  void between_calls(uint32_t context, Action action) {
    wait_for_turn(timelines_[context]);
    action();
    end_turn(timelines_[context]);
  }

  // Sums over all contexts that ever existed.
  uint64_t marks_made() const { return sum(&Timeline::marks_made); }
  uint64_t queries_made() const { return sum(&Timeline::queries_made); }

 private:
  // One context's progress.
  struct Timeline {
    static constexpr int kMarks = MemorySource::kMostMarks;

    struct Outstanding {
      Ticket ticket;
      Mark mark;
    };

    // Every call reads these. Each *_end is one more than a ticket, so 0 means none.
    alignas(128) std::atomic<Ticket> clean_end;
    std::atomic<Ticket> freed_end;  // of the newest free

    alignas(64) std::atomic<MemorySource*> source;  // nullptr: no such context
    std::atomic<Ticket> passed_end;
    std::atomic<Ticket> copies_end, copies_lost_end;  // copies_done(), only_marks_untie()
    std::atomic<Ticket> marked_end;                   // of the newest mark
    std::atomic<Ticket> late_end;                     // unmarked_is_late()
    std::atomic<bool> turn;                           // a thread may call the source
    std::atomic<bool> polled;                         // a thread polls in wait()
    std::atomic<uint32_t> moves;                      // futex of the sleepers in wait()
    std::atomic<int> sleepers;
    std::atomic<int> outstanding;  // marks; written with the turn
    std::atomic<bool> tied;        // any of ties is set
    // For each tied context: the ticket that it must pass before this one's memory is clean. kEver:
    // every ticket.
    std::atomic<Ticket> ties[kMaxContexts];
    // For each tied context: the tickets from here on are delayed. Its work cannot touch blocks
    // that were freed before the tie began.
    std::atomic<Ticket> tie_begins[kMaxContexts];
    Outstanding marks[kMarks];  // a ring, from `first` on, oldest first; used only with the turn
    int first;
    Counter marks_made, queries_made;  // of all contexts that had the number; with the turn
  };
  static constexpr Ticket kEver = ~Ticket{0};

  bool try_turn(Timeline& t) { return !t.turn.exchange(true, std::memory_order_acquire); }
  void wait_for_turn(Timeline& t);
  void end_turn(Timeline& t) { t.turn.store(false, std::memory_order_release); }
  bool wait_a_moment_for_turn(Timeline& t);
  bool mark_work(Timeline& t, Ticket newest, bool at_once);
  bool record(Timeline& t);
  void poll_work(Timeline& t);
  void poll_if_marked(Timeline& t);
  void begin_tie(Timeline& t, uint32_t worker);
  static bool is_over(Ticket tie, const Timeline& worker);
  void recompute(Timeline& t);
  void recompute_tied_to(uint32_t context);
  void moved(Timeline& t);
  // Calls visit(number, ticket) for every context whose unfinished work may touch memory of this
  // one. `ticket`: the one that it must pass.
  template <typename Visitor>
  void for_each_tied(Timeline& t, Visitor visit);
  uint64_t sum(Counter Timeline::*counter) const;
  int highest() const { return highest_.load(std::memory_order_acquire); }

  // All zero bytes at the start, so its memory costs nothing until it is used.
  alignas(128) std::atomic<Ticket> open_{0};            // every call reads it: apart from the rest
  alignas(128) std::atomic<bool> any_unmarked_{false};  // read by every submission
  std::atomic<bool> frozen_{false};
  Mutex ties_mutex_;             // held to begin or end a tie
  std::atomic<int> highest_{0};  // one more than the highest number ever used
  Timeline timelines_[kMaxContexts] = {};
  GraphLives graphs_;
};

}  // namespace cistern::alloc
