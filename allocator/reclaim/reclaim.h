// SPDX-License-Identifier: Apache-2.0
// Decides when a freed block is clean, i.e. when no earlier work can touch it any more. One object
// for the process, under all pools.
//
// Frees are stamped with the open ticket. Closing a ticket (a synchronisation begins, or an event
// is recorded) opens the next one; once a context is known to have finished everything up to the
// moment a ticket was closed, it has passed that ticket. A block is clean when its own context has
// passed its stamp, and so has every context *tied* to that one, whose work may touch its memory:
//
//   touched()   a copy between the two was handed over: tied until the worker has passed it
//   reaches()   peer access: tied until that is disabled, and the work under way then is done
//
// A tie concerns what is freed once it has begun: what was freed before, its work cannot touch.
// So a free costs two loads, an event covers every free of its context since the last one, a
// program that synchronises by itself causes no event, and a context that has nothing to do with a
// block never delays it.
//
// The program's wait for a stream or an event is no proof: other streams go on, among them
// per-thread ones of other threads. Where all are known it would save one mark, and cost each wait.
//
// What a living graph may hold is parked first (graph_lives.h), and waits for earlier work after.
//
// Contexts are numbered from 0 to kMaxContexts - 1; a number is used again once its context has
// left. stamp() and clean() are lock-free. mark() and poll() call the source; one thread
// does so at a time for each context, and the others that would wait a moment at most. join(),
// leave(), settle() and between_calls() do, and must not be called by a thread that holds anything
// such a call could need.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/ledger.h"
#include "allocator/base/mutex.h"
#include "allocator/base/source.h"
#include "allocator/base/ticket.h"
#include "allocator/reclaim/graph_lives.h"

namespace cistern::alloc {

class Reclaim {
 public:
  static constexpr int kMaxContexts = 256;

  // The ticket for a block of this context freed now, taken under the lock of the block's pool. The
  // device work the program handed over before must be ordered before this load, or the event of a
  // concurrent mark() might miss it: on x86 taking the lock is a full barrier already.
  Ticket stamp(uint32_t context) {
    const Ticket now = open();
    if (timelines_[context].freed_end.load(std::memory_order_relaxed) <= now) [[unlikely]]
      note_freed(context, now);
    return now;
  }

  // The open ticket: covers all the program handed over before this call.
  Ticket open() const {
#if !defined(__x86_64__)
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    return open_.load(std::memory_order_seq_cst);
  }

  // So many bytes of a context may wait (or more, with much live) before a free waits for them.
  static constexpr uint64_t kWaitingBound = uint64_t{256} << 20;

  // In place of a ticket: whatever the program has handed over by now may touch the block.
  static constexpr Ticket kNow = ~Ticket{0};

  // Blocks of this context stamped with this ticket or an earlier one are clean.
  Ticket clean(uint32_t context) const {
    return timelines_[context].clean_end.load(std::memory_order_acquire) - 1;
  }

  // A synchronisation of one context: close() before it starts, passed() after it succeeded.
  Ticket close() { return open_.fetch_add(1, std::memory_order_seq_cst); }
  void passed(uint32_t context, Ticket ticket);

  // A context appears or goes. Its number must not be in use. `was_there`: it is older than that,
  // so its work may touch what was freed before.
  void join(uint32_t context, MemorySource* source, bool was_there = false);
  void leave(uint32_t context);

  // `worker` was just handed work that may touch memory of `owner` (called after the source took
  // it); and whether any of its work may, from now on.
  void touched(uint32_t owner, uint32_t worker);
  void reaches(uint32_t owner, uint32_t worker, bool on);
  // The same of a worker that was there before it joined: nobody saw when it began to reach
  // `owner`, so what waits already waits for it, too.
  void reached_since_ever(uint32_t owner, uint32_t worker);

  // This party hands over no work: it has passed everything, and only those tied to it count.
  void has_no_work(uint32_t context) {
    timelines_[context].passed_end.store(kEver, std::memory_order_release);
  }

  // The source knows, without a mark, that what touched() told of this worker before the ticket
  // `end` was opened is done. Not so where it lost sight of some of it: then what was told so far
  // ends with marks only.
  void copies_done(uint32_t worker, Ticket end);
  void only_marks_untie(uint32_t worker);

  // There is a context whose work cannot be followed: nothing becomes clean any more. What is freed
  // still goes back to the driver when memory is short, which orders it.
  void freeze() { frozen_.store(true, std::memory_order_release); }
  bool frozen() const { return frozen_.load(std::memory_order_acquire); }

  // Something was freed that no mark covers yet, and perhaps no synchronisation: in any context
  // (one load, for the way of every submission), or in this one. Who has cleared the former looks
  // into every context, and sets it again if something stays unmarked.
  bool any_unmarked() const { return any_unmarked_.load(std::memory_order_relaxed); }
  void set_any_unmarked(bool any) { any_unmarked_.store(any, std::memory_order_seq_cst); }
  bool unmarked(uint32_t context) const;

  // A graph has changed: what is parked may leave, and waits for graphs_.covers_gone() then. The
  // next submission marks that; until it is clean it counts as late.
  void parked_may_leave();
  // Something of this context waits for this ticket, as stamp() notes of the open one.
  [[gnu::noinline]] void note_freed(uint32_t context, Ticket ticket);

  // What was freed in this context without a mark so far will be covered by a mark that comes after
  // later work: it is *late*. True while any such block is not clean.
  void unmarked_is_late(uint32_t context);
  bool any_late(uint32_t context) const;
  // Whether work of another context may touch its memory now; that context's other work may go on
  // for long.
  bool tied(uint32_t context);
  bool tied_to(uint32_t context, uint32_t worker);

  // Which blocks living graphs may hold. For a block handed out now, and freed now: one load each.
  GraphLives& graphs() { return graphs_; }
  const GraphLives& graphs() const { return graphs_; }
  void reset_after_fork() {
    ties_mutex_.reset();
    graphs_.reset_after_fork();
  }
  Epoch epoch() const { return graphs_.now(); }
  bool diverts(Epoch born) const { return graphs_.diverts(born); }

  // Makes sure that every block of the context stamped `newest` or earlier will become clean by
  // marks alone: marks its work, and that of contexts tied to it, unless that has been done. False
  // when it cannot be done now.
  // `at_once`: asks the new marks, too; and is also false while another thread calls the source,
  // which else is waited for.
  bool mark(uint32_t context, Ticket newest, bool at_once = false);
  // The same of everything freed so far.
  bool mark_freed(uint32_t context);

  // Asks the oldest marks of the context and of those tied to it; true when its clean() moved.
  bool poll(uint32_t context);

  // Whether marks of the context are outstanding.
  bool any_outstanding(uint32_t context) const {
    return timelines_[context].outstanding.load(std::memory_order_acquire) != 0;
  }

  // Polls until clean() reaches `target`; false after `limit_ns`, or when the context left. Calm:
  // of the threads that wait for a context one polls, with pauses, and the others sleep.
  bool wait(uint32_t context, Ticket target, uint64_t limit_ns);

  // Returns when no call to the context's source is under way.
  void settle(uint32_t context);

  // Calls action() once no call to the context's source is under way; none is made until it
  // returns.
  template <typename Action>
  void between_calls(uint32_t context, Action action) {
    wait_for_turn(timelines_[context]);
    action();
    end_turn(timelines_[context]);
  }

  // Of all contexts that there ever were.
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

    // Read by every call. Each *_end is one more than a ticket, so that 0 means none.
    alignas(128) std::atomic<Ticket> clean_end;
    std::atomic<Ticket> freed_end;  // the newest free

    alignas(64) std::atomic<MemorySource*> source;  // nullptr: no such context
    std::atomic<Ticket> passed_end;
    std::atomic<Ticket> copies_end, copies_lost_end;  // copies_done(), only_marks_untie()
    std::atomic<Ticket> marked_end;                   // a mark for it was made
    std::atomic<Ticket> late_end;                     // unmarked_is_late()
    std::atomic<bool> turn;                           // some thread calls the source
    std::atomic<bool> polled;                         // some thread polls in wait()
    std::atomic<uint32_t> moves;                      // wakes those that sleep in wait()
    std::atomic<int> sleepers;
    std::atomic<int> outstanding;  // marks; written with the turn
    std::atomic<bool> tied;        // any of ties is set
    // By context: what its work must have passed before this one's memory is clean; kEver: all.
    std::atomic<Ticket> ties[kMaxContexts];
    // What was freed before a tie began, its work cannot touch: the tickets from here on it delays.
    std::atomic<Ticket> tie_begins[kMaxContexts];
    Outstanding marks[kMarks];  // a ring, from `first` on, oldest first; touched only with the turn
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
  // Visits every context whose unfinished work may touch memory of this one, with its number and
  // the ticket that it must pass.
  template <typename Visitor>
  void for_each_tied(Timeline& t, Visitor visit);
  uint64_t sum(Counter Timeline::*counter) const;
  int highest() const { return highest_.load(std::memory_order_acquire); }

  // All zero bytes at the start, to lie in memory that costs nothing until it is used.
  alignas(128) std::atomic<Ticket> open_{0};  // read by every call: apart from what is written more
  alignas(128) std::atomic<bool> any_unmarked_{false};  // read by every submission
  std::atomic<bool> frozen_{false};
  Mutex ties_mutex_;             // while a tie begins or ends
  std::atomic<int> highest_{0};  // numbers ever used
  Timeline timelines_[kMaxContexts] = {};
  GraphLives graphs_;
};

}  // namespace cistern::alloc
