// SPDX-License-Identifier: Apache-2.0
// Decides when a freed block is clean, i.e. when no earlier work can touch it any more. One object
// for the process, under all pools.
//
// Frees are stamped with the open ticket. Closing a ticket (a synchronisation begins, or an event
// is recorded) opens the next one; once a context is known to have finished everything up to the
// moment a ticket was closed, it has passed that ticket. A block is clean when every context of the
// process has passed its stamp: any of them may reach it, by peer access or by a copy, and stream
// order proves nothing for cudaMalloc memory. So a free costs one load, an event covers every free
// since the last one, and a program that synchronises by itself causes no event at all.
//
// The program's wait for a stream or an event is no proof either: other streams go on, among them
// per-thread ones of other threads. Where all are known it would save one mark, and cost each wait.
//
// Executable graphs keep the addresses that were captured in them and use them again at any time. A
// block is born in an epoch; one that was born before a graph was made, and is freed while that
// graph lives, is parked: not reused before the graph is gone. (With the driver alone such a graph
// would touch freed memory; with a pool it must not touch somebody else's.)
//
// stamp() and clean() are lock-free. mark() and poll() call the source; one thread does so at a
// time, and the others that would do not wait for it. join(), leave(), settle() and between_calls()
// do, and must not be called by a thread that holds anything such a call could need.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/source.h"
#include "allocator/base/ticket.h"

namespace cistern::alloc {

// One context's progress.
struct Timeline {
  static constexpr int kMarks = 4;  // more outstanding marks would only be queried later

  std::atomic<MemorySource*> source;  // nullptr: slot not in use
  std::atomic<Ticket> passed;
  struct {
    Ticket ticket;
    Mark mark;
  } marks[kMarks];  // oldest first; touched only by the thread that holds the turn
  int count;
};

class Reclaim {
 public:
  static constexpr int kMaxContexts = 256;

  // The ticket for a block freed now, taken under the lock of the block's pool. The device work the
  // program handed over before must be ordered before this load, or the event of a concurrent
  // mark() might miss it: on x86 taking the lock is a full barrier already.
  Ticket stamp() const {
#if !defined(__x86_64__)
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    return open_.load(std::memory_order_seq_cst);
  }

  // In place of a ticket: whatever the program has handed over by now may touch the block.
  static constexpr Ticket kNow = ~Ticket{0};

  // Blocks stamped with this ticket or an earlier one are clean.
  Ticket clean() const { return clean_end_.load(std::memory_order_acquire) - 1; }

  // A synchronisation of one context: close() before it starts, passed() after it succeeded.
  Ticket close() { return open_.fetch_add(1, std::memory_order_seq_cst); }
  void passed(Timeline* timeline, Ticket ticket);

  // A context appears or goes. join() returns nullptr when there are too many, after freeze().
  Timeline* join(MemorySource* source);
  void leave(Timeline* timeline);

  // There is a context whose work cannot be followed: nothing becomes clean any more. What is freed
  // still goes back to the driver when memory is short, which orders it.
  void freeze() { frozen_.store(true, std::memory_order_release); }
  bool frozen() const { return frozen_.load(std::memory_order_acquire); }

  // For a block handed out now.
  Epoch epoch() const { return epoch_.load(std::memory_order_relaxed); }
  // Whether a block born then must be parked when it is freed now: if it was born before this
  // epoch.
  bool parks(Epoch born) const { return born < newest_graph(); }
  Epoch newest_graph() const { return newest_graph_.load(std::memory_order_acquire); }
  // True if a block born then, freed now, may not simply wait: it is parked, or possibly garbage
  // (garbage.h). One load tests both.
  bool diverts(Epoch born) const { return born < diverted_before_.load(std::memory_order_acquire); }
  // There may be garbage in this process: from now on diverts() is true of every block. Before the
  // first free.
  void divert_everything();
  // How often graphs have gone: each time parked blocks may have become free to wait.
  uint64_t graphs_gone() const { return graphs_gone_.load(std::memory_order_acquire); }
  // The ticket that covers the work of every graph that has gone, as far as newest_graph(), read
  // before, knows of it.
  Ticket gone_graphs_ticket() const { return gone_graphs_ticket_.load(std::memory_order_acquire); }

  // A graph is made that may use every block born so far: its epoch.
  Epoch graph_made() { return epoch_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  // The epoch of the newest graph that lives; 0: none; kEverything: a capture is in progress.
  static constexpr Epoch kEverything = ~Epoch{0};
  // One thread at a time.
  void set_newest_graph(Epoch newest);

  // Makes sure that every block stamped `newest` or earlier will become clean by marks alone:
  // marks the work of every context unless that has been done. False when it cannot be done now.
  bool mark(Ticket newest);

  // Asks the oldest marks, if there are any; true when clean() moved.
  bool poll();

  // Returns when no call to a source is under way.
  void settle();

  // Calls action() once no call to a source is under way; none is made until it returns.
  template <typename Action>
  void between_calls(Action action) {
    wait_for_turn();
    action();
    end_turn();
  }

  // Polls until clean() reaches `target`; false after `limit_ns`.
  bool wait(Ticket target, uint64_t limit_ns);

  uint64_t marks_made() const { return marks_made_.load(std::memory_order_relaxed); }
  uint64_t queries_made() const { return queries_made_.load(std::memory_order_relaxed); }

 private:
  bool try_turn() { return !turn_.exchange(true, std::memory_order_acquire); }
  void wait_for_turn();
  // With the turn.
  void count_marks(int more) {
    outstanding_.store(outstanding_.load(std::memory_order_relaxed) + more,
                       std::memory_order_release);
  }
  void end_turn() { turn_.store(false, std::memory_order_release); }
  // How many marks were answered.
  int poll_one(Timeline& timeline);
  void recompute_clean();
  int highest() const { return highest_.load(std::memory_order_acquire); }

  // All zero bytes at the start, to lie in memory that costs nothing until it is used.
  alignas(128) std::atomic<Ticket> open_{0};  // read by every call: apart from what is written more
  std::atomic<Ticket> clean_end_{0};          // clean() + 1; 0: no context yet, nothing runs
  std::atomic<Ticket> marked_{0};             // every context has a mark for this ticket
  std::atomic<bool> turn_{false};
  std::atomic<bool> frozen_{false};
  std::atomic<int> outstanding_{0};  // marks of all timelines; written with the turn
  std::atomic<int> highest_{0};      // slots ever used
  std::atomic<Epoch> epoch_{0};
  std::atomic<Epoch> newest_graph_{0};
  std::atomic<Epoch> diverted_before_{0};  // newest_graph_, or kEverything
  std::atomic<bool> everything_diverted_{false};
  std::atomic<uint64_t> graphs_gone_{0};
  std::atomic<Ticket> gone_graphs_ticket_{0};
  std::atomic<uint64_t> marks_made_{0};
  std::atomic<uint64_t> queries_made_{0};
  Timeline timelines_[kMaxContexts] = {};
};

}  // namespace cistern::alloc
