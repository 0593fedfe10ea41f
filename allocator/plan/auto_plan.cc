// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/auto_plan.h"

#include <algorithm>

#include "allocator/plan/planner.h"
#include "allocator/plan/replay.h"

namespace cistern::alloc::plan {
namespace {

constexpr uint64_t kTimes = 3, kMostAtOnce = 16;
constexpr uint64_t kSearchNs = 20'000'000, kSearchSteps = 2'000'000;

uint64_t outliving(const Iteration& iteration) {
  uint64_t count = 0;
  for (const Lifetime& life : iteration.requests) count += iteration.has(life) ? 0 : 1;
  return count;
}

// If most blocks outlive the period, as with requests of one size, several periods make an
// iteration.
bool find_iteration(const Requests& all, uint64_t calls, Iteration* out) {
  Repeats repeats;
  Begin begin;
  if (!find_repeats(all, /*to_the_end=*/true, &repeats)) return false;
  const uint64_t covered = repeats.to - repeats.from, period = repeats.period;
  for (uint64_t several = 1; several <= kMostAtOnce; ++several) {
    repeats.period = several * period;
    if (covered < kTimes * repeats.period || !find_begin(all, calls, repeats, &begin)) break;
    const Iteration found = {all.lives.subspan(begin.request, repeats.period),
                             all.lives[begin.request + repeats.period].from, covered};
    const bool few_outlive = 2 * outliving(found) <= repeats.period;
    if (several == 1 || few_outlive) *out = found;
    if (few_outlive) return true;
  }
  return !out->requests.empty();
}

Requests first_of(const Observed& all, size_t count) {
  return {all.lives.span().first(count), all.origins.span().first(count),
          all.phases.span().first(count)};
}

// Some of the requests, in their order: those for which wanted(their number).
template <typename Wanted>
Requests pick(const Observed& all, Wanted wanted, Observed* out) {
  size_t count = 0;
  for (size_t i = 0; i < all.lives.size(); ++i) {
    if (!wanted(i)) continue;
    out->lives[count] = all.lives[i];
    out->origins[count] = all.origins[i];
    out->phases[count++] = all.phases[i];
  }
  return first_of(*out, count);
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
  Observed all;
  Iteration iteration;
  if (!observer.look(&all)) return false;
  const size_t requests = all.lives.size();
  const bool alone = std::all_of(all.threads.begin(), all.threads.end(),
                                 [&](uint16_t each) { return each == all.threads[0]; });
  if (find_iteration(first_of(all, requests), all.calls, &iteration) &&
      (alone || 2 * iteration.covered >= requests)) {
    return add(iteration, Period::iteration, alignment);
  }
  if (alone ? make_by_phases(all, alignment) : make_by_threads(all, alignment)) return true;
  count_ = 0;
  return false;
}

bool OwnPlans::add(const Iteration& iteration, Period period, uint64_t alignment) {
  if (count_ == kMostPlans || !own_[count_].make(iteration, period, alignment)) return false;
  plans_[count_] = own_[count_].plan();
  ++count_;
  return true;
}

// If all requests are in phases, this finds no more than the search over all requests. If few are,
// the plan would be left between two phases.
bool OwnPlans::make_by_phases(const Observed& all, uint64_t alignment) {
  Observed some;
  if (!some.make(all.lives.size())) return false;
  const Requests in_phases = pick(
      all, [&](size_t i) { return all.phases[i] != 0; }, &some);
  Iteration iteration;
  const size_t inside = in_phases.lives.size(), requests = all.lives.size();
  return inside < requests && inside * (Replay::kMostPassed / 2) >= requests &&
         find_iteration(in_phases, all.calls, &iteration) && 2 * iteration.covered >= inside &&
         add(iteration, Period::phase, alignment);
}

// A thread that makes many requests and does not repeat itself yet may do so soon.
bool OwnPlans::make_by_threads(const Observed& all, uint64_t alignment) {
  constexpr size_t kMany = 16, kPatience = Observer::kMost / 8;
  const size_t requests = all.lives.size();
  Observed some;
  if (!some.make(requests)) return false;
  for (unsigned thread = 0; thread < Replay::kThreads; ++thread) {
    const Requests own = pick(
        all, [&](size_t i) { return all.threads[i] == thread; }, &some);
    const size_t count = own.lives.size();
    Iteration iteration;
    const bool repeats =
        find_iteration(own, all.calls, &iteration) && 2 * iteration.covered >= count;
    if (repeats) add(iteration, Period::thread, alignment);
    if (!repeats && count * kMany >= requests && requests < kPatience) return false;
  }
  return count_ != 0;
}

uint64_t OwnPlans::requests() const {
  uint64_t requests = 0;
  for (const Plan& plan : plans()) requests += plan.head().requests;
  return requests;
}

}  // namespace cistern::alloc::plan
