// SPDX-License-Identifier: Apache-2.0
// Follows the requests of a program through its plan. A request of the size that comes next in the
// plan has a place there. Any other one leaves the plan: the pools serve it and those after it.
// allocator/plan_arena.h checks whether the memory of a place is free.
//
// The plan of a whole run begins with the first request, and is left once. The plan of an iteration
// begins after as many requests as when it was made. Once left, it goes on if there was just one
// request more than in the plan; otherwise it begins again once the last four requests match its
// end. A plan of the requests in phases passes over all others, and begins again with any phase
// whose first request is not the plan's next one; or is, where the plan was left and the last
// requests match its end.
//
// Several plans are followed at once if each is one thread's: a thread follows the plan that begins
// with its requests, and no other thread follows it meanwhile. Each has memory of its own.
//
// Any thread: there is a lock. Owns nothing; the plans stay unchanged while they are followed.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/base/ledger.h"
#include "allocator/base/mutex.h"
#include "allocator/plan/plan_file.h"

namespace cistern::alloc::plan {

struct PlanPlace {
  uint64_t offset;
  uint64_t plan_bytes;  // of the memory in which that is
  bool first;           // that has a place in its period
};

class Replay {
 public:
  static constexpr unsigned kThreads = 64;  // what others ask for has no place
  // So many periods' requests between two phases end a plan of what is asked for in phases.
  static constexpr uint64_t kMostPassed = 64;

  // Without plans nothing is followed. Of several, no more than kMostPlans.
  void follow(std::span<const Plan> plans, Ledger* ledger);
  bool has_plan() const { return plans_.load(std::memory_order_acquire) != 0; }

  // The request of `bytes` that a thread of the program makes now, in the run of a phase or in none
  // (0). True: it has a place in a plan.
  bool next(uint64_t bytes, unsigned thread, uint32_t phase, PlanPlace* place) {
    bool placed;
    return is_next(bytes, thread, phase, place, &placed) ? placed
                                                         : find(bytes, thread, phase, place);
  }
  // The same in two steps. False: find() has to look.
  [[gnu::always_inline]] inline bool is_next(uint64_t bytes, unsigned thread, uint32_t phase,
                                             PlanPlace* place, bool* placed);
  bool find(uint64_t bytes, unsigned thread, uint32_t phase, PlanPlace* place);

  // Whether no plan is followed now; for a whole period; and for good: it was a run's, or for so
  // long that the program seems to do something else.
  bool left() const { return followed_.load(std::memory_order_relaxed) == 0; }
  bool left_for_a_period() const { return left() && outside_.load(std::memory_order_relaxed) != 0; }
  bool left_for_good() const {
    return left() && (of_a_run() || outside_.load(std::memory_order_relaxed) > kMostOutside);
  }

  // Whether a thread followed no period to its end for so long that it seems to repeat something
  // else, even if that begins as the plan does. A thread that has no plan beside others that follow
  // one is given longer. If hardly a period was followed until the next plan is, the thread is
  // given twice as long then.
  bool seldom_followed() const { return seldom_.load(std::memory_order_relaxed) != 0; }

  // Whether the plan is a whole run's.
  bool of_a_run() const { return once_.load(std::memory_order_relaxed); }

  void reset_after_fork() { mutex_.reset(); }

 private:
  static constexpr unsigned kRemembered = 4;
  static constexpr unsigned kNobody = ~0u;
  static constexpr uint64_t kMostOutside = 3;    // periods
  static constexpr uint64_t kSeldom = 4;         // the same: a new plan is entered within two
  static constexpr uint64_t kSeldomBeside = 64;  // the same, for a thread without a plan
  static constexpr unsigned kMostDoubled = 8;

  // A plan, and how far a thread is in it.
  struct Way {
    const Plan* plan;
    uint64_t base;      // of its memory
    uint64_t at;        // the request that comes next
    uint64_t last_use;  // requests of the program
    unsigned thread;    // that follows it, or kNobody
    bool placed;        // a request of this period
  };
  struct Thread {
    // The plan's next request and its last one. They are equal where the thread is not in the
    // middle of a period, or no request of the period had a place yet. The requests from `settled`
    // to `next` are not counted yet, below and in `way`.
    const uint8_t *next, *last, *settled;
    uint64_t base;                 // of the places
    uint64_t seen;                 // requests
    uint64_t latest[kRemembered];  // bytes of the last ones, by their number
    Way* way;                      // that it follows, or nullptr
    bool strayed;                  // by the last request
    bool seldom;                   // followed it to its end
    unsigned doubled;              // how often that became twice as long
    uint64_t planned;   // requests of the plan that it followed last; 0: it has followed none
    uint64_t ended;     // periods followed to their end
    uint64_t ended_at;  // what it had seen at the last one
  };

  bool take_place(Way& way, PlanPlace* place) const;
  void settle(Thread& thread);
  void note_end(Thread& thread);
  void note_seldom(Thread& thread, bool seldom);
  bool follows_seldom(const Thread& thread) const;
  void settle_all();
  static void go_on(Thread& thread);
  static void stop(Thread& thread) { thread.next = thread.last = thread.settled = nullptr; }
  Way* way_of(unsigned thread, uint64_t bytes);
  bool is_free(const Way& way);
  bool stays(Thread& thread, Way& way, uint64_t bytes);
  static void come_back(const Thread& thread, Way& way, uint64_t bytes);
  void begin_again(Thread& thread, Way& way);
  void note_phase(uint32_t phase);
  void pass_over(Thread& thread);
  void leave(Thread& thread);
  bool begins_with(const Thread& thread, const Plan& plan, uint64_t bytes) const;
  static bool ended_before(const Thread& thread, const Plan& plan);

  Mutex mutex_;
  std::atomic<unsigned> plans_;
  Ledger* ledger_;
  Way ways_[kMostPlans];
  Thread threads_[kThreads];
  std::atomic<unsigned> followed_;  // ways
  std::atomic<bool> once_;          // the plan is a run's
  std::atomic<uint64_t> outside_;   // periods
  std::atomic<unsigned> seldom_;    // threads
  bool by_thread_, by_phase_;
  bool begins_;          // the request is the first of a phase, and the plan one by phases
  uint32_t phase_;       // the last one, with a plan or without
  uint64_t passed_;      // requests since it
  uint64_t period_;      // requests of all plans
  uint64_t plan_bytes_;  // the same
  uint64_t requests_;    // of the program
  uint64_t since_left_;  // of them
};

// Most requests are in the middle of a period, and the plan's next one.
bool Replay::is_next(uint64_t bytes, unsigned thread_number, uint32_t phase, PlanPlace* place,
                     bool* placed) {
  const LockGuard guard(mutex_);
  Thread* follows = &threads_[0];
  if (by_thread_ || by_phase_ || phase != 0) [[unlikely]] {
    const bool known = phase == 0 ? !by_phase_ : phase == phase_;
    const unsigned number = by_thread_ ? thread_number : 0;
    if (!known || number >= kThreads) return false;
    follows = &threads_[number];
  }
  Thread& thread = *follows;
  if (thread.next == thread.last) [[unlikely]]
    return false;
  const PlannedRequest expected = Plan::request_at(thread.next);
  if (expected.bytes != bytes) [[unlikely]]
    return false;
  thread.next += sizeof expected;
  *placed = expected.outside == 0;
  *place = {thread.base + expected.offset, plan_bytes_, false};
  return true;
}

}  // namespace cistern::alloc::plan
