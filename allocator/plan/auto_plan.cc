// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/auto_plan.h"

#include <algorithm>

#include "allocator/plan/period.h"
#include "allocator/plan/planner.h"
#include "allocator/plan/replay.h"

namespace cistern::alloc::plan {
namespace {

constexpr uint64_t kTimes = 3;
constexpr uint64_t kSearchNs = 20'000'000, kSearchSteps = 2'000'000;

bool find_iteration(std::span<const Lifetime> all, uint64_t calls, Iteration* out) {
  Repeats repeats;
  Begin begin;
  if (!find_repeats(all, /*to_the_end=*/true, &repeats)) return false;
  if (repeats.to - repeats.from < kTimes * repeats.period) return false;
  if (!find_begin(all, calls, repeats, &begin)) return false;
  *out = {all.subspan(begin.request, repeats.period), all[begin.request + repeats.period].from,
          repeats.to - repeats.from};
  return true;
}

bool pack(const Iteration& iteration, uint64_t alignment, Planned* planned) {
  Array<Lifetime> lives;
  if (!lives.make(iteration.requests.size())) return false;
  size_t count = 0;
  for (const Lifetime& life : iteration.requests) {
    if (iteration.has(life)) lives[count++] = life;
  }
  Problem problem;
  if (count == 0 || problem.build(lives.span().first(count), alignment) != Built::yes) return false;
  PlannerOptions options;
  options.steps = kSearchSteps;
  options.deadline_ns = os::now_ns() + kSearchNs;
  return alloc::plan::plan(problem, options, *planned);
}

}  // namespace

bool OwnPlan::make(const Iteration& iteration, Period period, uint64_t alignment) {
  Planned planned;
  if (!pack(iteration, alignment, &planned)) return false;
  Array<PlannedRequest> requests;
  if (!requests.make(iteration.requests.size())) return false;
  size_t next = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Lifetime& life = iteration.requests[i];
    requests[i].bytes = life.bytes;
    requests[i].outside = iteration.has(life) ? 0 : 1;
    if (iteration.has(life)) requests[i].offset = planned.offsets[next++];
  }
  PlanHead head{};
  head.period = period;
  head.requests = requests.size();
  head.bytes = planned.bytes;
  head.alignment = alignment;
  head.before = ~uint64_t{0};  // the program is behind that already
  requests_ = std::move(requests);
  plan_ = Plan(head, requests_.begin());
  return true;
}

// All threads together may repeat some calls by chance. That is no iteration.
bool OwnPlans::make(Observer& observer, uint64_t alignment) {
  count_ = 0;
  Array<Lifetime> all;
  Array<uint16_t> threads;
  uint64_t calls;
  Iteration iteration;
  if (!observer.look(&all, &threads, &calls)) return false;
  const bool alone = std::all_of(threads.begin(), threads.end(),
                                 [&](uint16_t each) { return each == threads[0]; });
  if (find_iteration(all.span(), calls, &iteration) &&
      (alone || 2 * iteration.covered >= all.size())) {
    return add(iteration, Period::iteration, alignment);
  }
  if (!alone && make_by_threads(all, threads, calls, alignment)) return true;
  count_ = 0;
  return false;
}

bool OwnPlans::add(const Iteration& iteration, Period period, uint64_t alignment) {
  if (count_ == kMostPlans || !own_[count_].make(iteration, period, alignment)) return false;
  plans_[count_] = own_[count_].plan();
  ++count_;
  return true;
}

// A thread that makes many requests and does not repeat itself yet may do so soon.
bool OwnPlans::make_by_threads(const Array<Lifetime>& all, const Array<uint16_t>& threads,
                               uint64_t calls, uint64_t alignment) {
  constexpr size_t kMany = 16, kPatience = Observer::kMost / 8;
  Array<Lifetime> own;
  if (!own.make(all.size())) return false;
  for (unsigned thread = 0; thread < Replay::kThreads; ++thread) {
    size_t count = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (threads[i] == thread) own[count++] = all[i];
    }
    Iteration iteration;
    const bool repeats = find_iteration(own.span().first(count), calls, &iteration) &&
                         2 * iteration.covered >= count;
    if (repeats) add(iteration, Period::thread, alignment);
    if (!repeats && count * kMany >= all.size() && all.size() < kPatience) return false;
  }
  return count_ != 0;
}

uint64_t OwnPlans::requests() const {
  uint64_t requests = 0;
  for (const Plan& plan : plans()) requests += plan.head().requests;
  return requests;
}

}  // namespace cistern::alloc::plan
