// SPDX-License-Identifier: Apache-2.0
// Follows the requests of a program through its plan. A request whose size is the next in the plan
// has a place there. With any other request the plan is left: the pools serve it and those after
// it. allocator/plan_arena.h checks whether the memory of a place is free.
//
// The plan of a whole run begins with the first request. Once left, it is not entered again. The
// plan of an iteration begins after PlanHead::before requests. If it is left because of a single
// additional request, it goes on with the next one. Otherwise it begins again once the last four
// requests match its end. A plan of the requests in phases ignores all other requests. It begins
// again when a phase begins with the plan's first request and that is not the plan's next one. If
// that is also the next one, it begins again only if the plan was left and the last four requests
// match its end.
//
// If each plan is for one thread, several are followed at once: a thread follows the plan that
// begins with its requests, and no other thread follows that plan meanwhile. Each plan has memory
// of its own.
//
// Any thread; one lock. Owns nothing: the plans must stay unchanged while they are followed.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/base/ledger.h"
#include "allocator/base/threads.h"
#include "allocator/plan/plan_file.h"

namespace cistern::alloc::plan {

struct PlanPlace {
  uint64_t offset;
  uint64_t plan_bytes;  // size of the memory that has this offset
  bool first;           // the first request of its period that has a place
};

class Replay {
 public:
  static constexpr unsigned kThreads = 64;  // requests of further threads have no place
  // A plan of the requests in phases ends after this many periods' requests without a phase.
  static constexpr uint64_t kMostPassed = 64;

  // Follows these plans from now on, at most kMostPlans of them. Without plans nothing is followed.
  void follow(std::span<const Plan> plans, Ledger* ledger);
  bool has_plan() const { return plans_.load(std::memory_order_acquire) != 0; }

  // The thread makes a request of `bytes`, in the run `phase` or in none (0). True if it has a
  // place in a plan.
  bool next(uint64_t bytes, unsigned thread, uint32_t phase, PlanPlace* place) {
    bool placed;
    return is_next(bytes, thread, phase, place, &placed) ? placed
                                                         : find(bytes, thread, phase, place);
  }
  // next() in two steps. If is_next() is false, call find(). Otherwise *placed is the result.
  [[gnu::always_inline]] inline bool is_next(uint64_t bytes, unsigned thread, uint32_t phase,
                                             PlanPlace* place, bool* placed);
  bool find(uint64_t bytes, unsigned thread, uint32_t phase, PlanPlace* place);

  // Whether no plan is followed now; none was for a whole period; none will be again. The last is
  // true for the plan of a run, or after so long that the program seems to do something else.
  bool left() const { return followed_.load(std::memory_order_relaxed) == 0; }
  bool left_for_a_period() const { return left() && outside_.load(std::memory_order_relaxed) != 0; }
  bool left_for_good() const {
    return left() && (of_a_run() || outside_.load(std::memory_order_relaxed) > kMostOutside);
  }

  // Whether a thread has followed no period to its end for so long that it seems to repeat
  // something else, even if that begins like the plan. A thread without a plan beside threads with
  // one gets longer. If the plans of threads are replaced soon, the next ones get twice as long.
  bool seldom_followed() const { return seldom_.load(std::memory_order_relaxed) != 0; }

  // Threads that made no request while all together made kLeastBeside may have ended:
  // seldom_followed() no longer counts them.
  void pass_silent_threads();

  // Whether the plan is a whole run's.
  bool of_a_run() const { return once_.load(std::memory_order_relaxed); }

  void reset_after_fork() { mutex_.reset(); }

 private:
  static constexpr unsigned kRemembered = 4;
  static constexpr unsigned kNobody = ~0u;
  static constexpr uint64_t kMostOutside = 3;  // periods
  // When a plan is seldom followed: after so many periods. A new plan is entered within two.
  static constexpr uint64_t kSeldom = 4;
  // The same for a thread without a plan, but no fewer requests: a look takes as many.
  static constexpr uint64_t kSeldomBeside = 64, kLeastBeside = 16'384;
  // Plans are replaced soon: within so many periods of all plans together, or so many requests.
  static constexpr uint64_t kSoon = 256, kLeastSoon = 16 * kLeastBeside;
  static constexpr unsigned kMostDoubled = 8;

  // A plan, and how far a thread is in it.
  struct Way {
    const Plan* plan;
    uint64_t base;      // of its memory
    uint64_t at;        // number of the next request
    uint64_t last_use;  // requests_ at its last use
    unsigned thread;    // the one that follows it, or kNobody
    bool placed;        // a request of this period had a place
  };
  struct Thread {
    // The plan's next request and its last one. They are equal if the thread is not in the middle
    // of a period, or if no request of the period had a place yet. The requests from `settled` to
    // `next` are not yet counted in `seen` and in `way`.
    const uint8_t *next, *last, *settled;
    uint64_t base;                 // of the places
    uint64_t seen;                 // requests
    uint64_t latest[kRemembered];  // bytes of the last ones, by their number
    Way* way;                      // the one that it follows, or nullptr
    bool strayed;                  // the last request left the plan
    bool seldom;                   // see seldom_followed()
    uint64_t planned;      // requests of the plan that it followed last; 0: it has followed none
    uint64_t ended_at;     // `seen` when it followed a period to its end last
    uint64_t seen_before;  // `seen` at silent_at_
  };

  bool take_place(Way& way, PlanPlace* place) const;
  void settle(Thread& thread);
  void note_end(Thread& thread);
  void note_seldom(Thread& thread, bool seldom);
  void lose(Thread& thread);
  bool follows_seldom(const Thread& thread) const;
  void note_replaced();
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
  bool by_thread_ = false, by_phase_ = false;
  bool begins_;           // the request is the first of a phase, and the plan is by phases
  uint32_t phase_;        // the last run of a phase, with or without a plan
  uint64_t passed_;       // requests outside of phases since phase_
  uint64_t period_;       // requests of all plans together
  uint64_t plan_bytes_;   // bytes of all plans together
  uint64_t requests_;     // of the program
  uint64_t since_left_;   // requests_ made since no plan is followed
  uint64_t silent_at_;    // requests_ when pass_silent_threads() looked last
  unsigned doubled_ = 0;  // how often the plans of threads get twice as long
};

// The fast way: most requests are in the middle of a period, and are the plan's next one.
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
