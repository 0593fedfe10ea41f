// SPDX-License-Identifier: Apache-2.0
// Finds what a program repeats, in requests that are remembered while it runs or that a recording
// has: the longest stretch of requests in which each has the same size as the one a period before,
// and the same call site if that is known. Also finds the best beginning for a period: where the
// fewest bytes are live, so that few blocks outlive it, and where a phase begins, if there are
// phases. From what an Observer saw, OwnPlans makes plans of a period.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/base/threads.h"
#include "allocator/plan/plan_file.h"
#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

// Requests by their number.
struct Repeats {
  uint64_t from = 0, to = 0;  // `to` is behind the last one
  uint64_t period = 0;        // in requests; there are at least two periods
};

// The requests, and where each comes from. An empty span is not compared.
struct Requests {
  std::span<const Lifetime> lives;
  std::span<const uint64_t> origins = {};  // a number for stream, range and call site together
  std::span<const uint32_t> phases = {};   // the run of a phase, rising with time; 0: in none
};

// The two searches may be called by any thread; nothing is kept. Without memory they report that
// nothing repeats.

// False if nothing repeats. `to_the_end`: only what repeats up to the last request. Compares size
// and origin. If less than half as much repeats this way as by size alone, it compares only sizes,
// because a range's name or a stream may be new each time.
bool find_repeats(const Requests& requests, bool to_the_end, Repeats* out);

// Finds where the period of a plan begins: the last whole period that has the beginning of another
// one behind it. Times are numbers of calls, from 0 to `calls`. False without memory.
struct Begin {
  uint64_t request = 0;
  uint64_t before = 0;  // requests before the first whole period that begins there
};
bool find_begin(const Requests& requests, uint64_t calls, const Repeats& repeats, Begin* out);

// Who requests memory, as far as it is known.
struct Caller {
  unsigned thread;  // its number
  uint32_t phase;   // the run of its graph (record/phases.h); 0: it is in none
  uint64_t origin;  // call site and range
};

// Requests in their order.
struct Observed {
  bool make(size_t requests) {
    return lives.make(requests) && origins.make(requests) && phases.make(requests) &&
           threads.make(requests);
  }

  Array<Lifetime> lives;
  Array<uint64_t> origins;
  Array<uint32_t> phases;
  Array<uint16_t> threads;
  uint64_t calls = 0;
};

// Remembers the last requests of a program, and for each the numbers of the calls that allocated
// and freed it. OwnPlans makes plans from them while the program runs. Once full, it forgets the
// older half.
//
// Any thread; one lock. Owns its tables of 8 MiB, whose pages become resident as they are used.
// Without memory for them it records nothing.
class Observer {
 public:
  static constexpr uint32_t kMost = 1 << 17;  // requests

  // Begins to record. False without memory.
  bool start();
  // Ends the recording and gives the tables back.
  void stop();

  // True if a look is due. Until look() is called, true again every kFirstLook requests, in case
  // the caller could not look.
  bool allocated(uint64_t bytes, const Caller& caller, uint64_t address);
  void freed(uint64_t address);

  // Whether a look is due: since the last look as many requests came as before it, or half of
  // kMost.
  bool due() const { return total_.load(std::memory_order_relaxed) >= look_at_; }

  // Copies the remembered requests. Times are numbers of calls, from 0 to Observed::calls; a block
  // that was not freed ends at Observed::calls. False if there are none, or without memory. Then
  // decides when the next look is due.
  bool look(Observed* out);

  void reset_after_fork() { mutex_.reset(); }

 private:
  static constexpr uint32_t kFirstLook = 256, kBuckets = 1 << 17;
  static constexpr uint64_t kLive = UINT64_MAX;

  struct Seen {
    uint64_t bytes, from, to, address;
    Caller caller;
    uint32_t next;  // in its bucket: the index plus 1
  };

  static uint32_t bucket_of(uint64_t address) {
    return static_cast<uint32_t>(address * 0x9E3779B97F4A7C15 >> 40) & (kBuckets - 1);
  }
  void enter(uint32_t number);
  void forget_half();

  Mutex mutex_;
  Array<Seen> seen_;
  Array<uint32_t> buckets_;  // the last request there: the index plus 1
  uint32_t count_;
  std::atomic<uint64_t> total_;    // requests so far
  std::atomic<uint64_t> look_at_;  // total_ at which a look is due
  uint64_t calls_;
};

// The requests of one iteration, which a plan is made of.
struct Iteration {
  std::span<const Lifetime> requests;
  uint64_t end;      // the call with which the next iteration begins
  uint64_t covered;  // requests of all observed iterations together

  bool has(const Lifetime& life) const { return life.to < end; }
};

// A plan that owns its memory.
class OwnPlan {
 public:
  // All offsets are multiples of `alignment`. False, and nothing changes, if no block can be
  // planned or there is no memory.
  bool make(const Iteration& iteration, Period period, uint64_t alignment);

  const Plan& plan() const { return plan_; }

 private:
  Array<PlannedRequest> requests_;
  Plan plan_;
};

// Makes the plan of an iteration from what an Observer saw: finds the period that the program
// repeats now, and offsets for the blocks that are freed within it. If the requests as a whole do
// not repeat, it tries only those in phases. If several threads allocate, each thread that repeats
// itself gets a plan of its own.
//
// One thread at a time. It takes some milliseconds for each thousand requests.
class OwnPlans {
 public:
  // False, and there are no plans, if the program did not repeat itself three times, no block can
  // be planned, or there is no memory.
  bool make(Observer& observer, uint64_t alignment);

  std::span<const Plan> plans() const { return {plans_, count_}; }
  uint64_t requests() const;

 private:
  bool add(const Iteration& iteration, Period period, uint64_t alignment);
  bool make_by_phases(const Observed& all, uint64_t alignment);
  bool make_by_threads(const Observed& all, uint64_t alignment);

  OwnPlan own_[kMostPlans];
  Plan plans_[kMostPlans];
  size_t count_ = 0;
};

}  // namespace cistern::alloc::plan
