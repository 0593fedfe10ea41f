// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/auto_plan.h"

#include "allocator/plan/period.h"
#include "allocator/plan/planner.h"

namespace cistern::alloc::plan {
namespace {

constexpr uint64_t kTimes = 3;
constexpr uint64_t kSearchNs = 20'000'000, kSearchSteps = 2'000'000;

struct Iteration {
  std::span<const Lifetime> requests;
  uint64_t end;  // the call with which the next one begins

  bool has(const Lifetime& life) const { return life.to < end; }
};

bool find_iteration(const Array<Lifetime>& all, uint64_t calls, Iteration* out) {
  Repeats repeats;
  Begin begin;
  if (!find_repeats(all.span(), /*to_the_end=*/true, &repeats)) return false;
  if (repeats.to - repeats.from < kTimes * repeats.period) return false;
  if (!find_begin(all.span(), calls, repeats, &begin)) return false;
  *out = {all.span().subspan(begin.request, repeats.period),
          all[begin.request + repeats.period].from};
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

bool OwnPlan::make(Observer& observer, uint64_t alignment) {
  Array<Lifetime> all;
  uint64_t calls;
  Iteration iteration;
  Planned planned;
  if (!observer.look(&all, &calls) || !find_iteration(all, calls, &iteration)) return false;
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
  head.period = Period::iteration;
  head.requests = requests.size();
  head.bytes = planned.bytes;
  head.alignment = alignment;
  head.before = ~uint64_t{0};  // the program is behind that already
  requests_ = std::move(requests);
  plan_ = Plan(head, requests_.begin());
  return true;
}

}  // namespace cistern::alloc::plan
