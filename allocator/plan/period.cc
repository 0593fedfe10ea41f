// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/period.h"

#include <algorithm>
#include <bit>

#include "allocator/plan/planner.h"
#include "allocator/plan/replay.h"

namespace cistern::alloc::plan {

// --- repeats and where they begin ---

namespace {

constexpr uint64_t kTogether = 4;  // requests in a row that are looked up
constexpr size_t kMostTried = 64;  // distances

uint64_t origin_of(const Requests& requests, uint64_t i) {
  return requests.origins.empty() ? 0 : requests.origins[i];
}

bool same(const Requests& requests, uint64_t one, uint64_t other) {
  return requests.lives[one].bytes == requests.lives[other].bytes &&
         origin_of(requests, one) == origin_of(requests, other);
}

uint64_t hash_of(const Requests& requests, uint64_t at) {
  uint64_t hash = 0;
  for (uint64_t i = at; i < at + kTogether; ++i) {
    for (const uint64_t word : {requests.lives[i].bytes, origin_of(requests, i)}) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 32;
    }
  }
  return hash;
}

// How often a few requests in a row came again at each distance from the last time. A period is one
// of the distances, as long as some requests come once in it.
bool count_distances(const Requests& requests, Array<uint32_t>& counts) {
  struct Seen {
    uint64_t hash, next;  // the request behind it; 0: unused
  };
  const uint64_t size = std::bit_ceil(2 * requests.lives.size());
  Array<Seen> seen;
  if (!seen.make(size) || !counts.make(requests.lives.size() + 1)) return false;
  for (uint64_t i = 0; i + kTogether <= requests.lives.size(); ++i) {
    const uint64_t hash = hash_of(requests, i);
    uint64_t slot = hash & (size - 1);
    while (seen[slot].next != 0 && seen[slot].hash != hash) slot = (slot + 1) & (size - 1);
    if (seen[slot].next != 0) ++counts[i + 1 - seen[slot].next];
    seen[slot] = {hash, i + 1};
  }
  return true;
}

// The likeliest periods among the distances; the rest of `chosen` is 0. A short distance that came
// up once is chance.
void choose(const Array<uint32_t>& counts, std::span<uint64_t, kMostTried> chosen) {
  double weights[kMostTried] = {};
  std::fill(chosen.begin(), chosen.end(), 0);
  for (uint64_t distance = 1; distance < counts.size(); ++distance) {
    const double count = counts[distance];
    const double weight = count * count * static_cast<double>(distance);
    const auto least =
        static_cast<size_t>(std::min_element(weights, weights + kMostTried) - weights);
    if (weight <= weights[least]) continue;
    weights[least] = weight;
    chosen[least] = distance;
  }
}

// The longest stretch with this period.
Repeats longest(const Requests& requests, uint64_t period, bool to_the_end) {
  Repeats best{0, 0, period};
  uint64_t from = 0;
  for (uint64_t i = period; i <= requests.lives.size(); ++i) {
    const bool over = i == requests.lives.size();
    if (!over && same(requests, i, i - period)) continue;
    const bool counts = !to_the_end || over;
    if (counts && i - from > best.to - best.from) best = {from, i, period};
    from = i + 1 - period;
  }
  return best;
}

// The longest stretch with any of the likeliest periods.
bool find_longest(const Requests& requests, bool to_the_end, Repeats* out) {
  Array<uint32_t> counts;
  if (requests.lives.size() < 2 * kTogether || !count_distances(requests, counts)) return false;
  uint64_t chosen[kMostTried];
  choose(counts, chosen);
  std::sort(chosen, chosen + kMostTried);
  *out = {};
  for (const uint64_t period : chosen) {
    if (period == 0) continue;
    const Repeats found = longest(requests, period, to_the_end);
    const uint64_t length = found.to - found.from;
    if (length >= 2 * period && length > out->to - out->from) *out = found;
  }
  return out->period != 0;
}

// The first request of a phase.
bool begins_phase(std::span<const uint32_t> phases, uint64_t i) {
  return phases[i] != 0 && (i == 0 || phases[i] > phases[i - 1]);
}

// Phases are where a period may begin if one does in the last of them and a period later.
bool begins_there(std::span<const uint32_t> phases, uint64_t i, uint64_t period) {
  return begins_phase(phases, i) && begins_phase(phases, i + period);
}

}  // namespace

bool find_repeats(const Requests& requests, bool to_the_end, Repeats* out) {
  Repeats by_size;
  if (!find_longest({.lives = requests.lives}, to_the_end, &by_size)) return false;
  const bool known = !requests.origins.empty() && find_longest(requests, to_the_end, out);
  if (!known || 2 * (out->to - out->from) < by_size.to - by_size.from) *out = by_size;
  return true;
}

bool find_begin(const Requests& requests, uint64_t calls, const Repeats& repeats, Begin* out) {
  Array<uint64_t> change;  // of the bytes live, by call, as numbers that wrap around
  if (!change.make(calls + 1)) return false;
  for (const Lifetime& life : requests.lives) {
    change[life.from] += life.bytes;
    change[life.to] -= life.bytes;
  }
  const uint64_t first = repeats.to - 2 * repeats.period, last = repeats.to - repeats.period;
  bool by_phases = false;
  for (uint64_t i = first; i < last && !by_phases && !requests.phases.empty(); ++i) {
    by_phases = begins_there(requests.phases, i, repeats.period);
  }
  uint64_t live = 0, least = UINT64_MAX, call = 0;
  for (uint64_t i = 0; i < last; ++i) {
    while (call < requests.lives[i].from) live += change[call++];
    if (i < first || live > least) continue;
    if (by_phases && !begins_there(requests.phases, i, repeats.period)) continue;
    least = live;
    out->request = i;
  }
  out->before = repeats.from + (out->request - repeats.from) % repeats.period;
  return true;
}

// --- what a program requests ---

bool Observer::start() {
  LockGuard guard(mutex_);
  count_ = 0;
  total_.store(0, std::memory_order_relaxed);
  look_at_.store(kFirstLook, std::memory_order_relaxed);
  calls_ = 0;
  if (seen_.make(kMost) && buckets_.make(kBuckets)) return true;
  seen_ = {};
  return false;
}

void Observer::stop() {
  LockGuard guard(mutex_);
  seen_ = {};
  buckets_ = {};
}

bool Observer::allocated(uint64_t bytes, const Caller& caller, uint64_t address) {
  LockGuard guard(mutex_);
  if (seen_.size() == 0) return false;
  if (count_ == kMost) forget_half();
  seen_[count_] = {bytes, calls_++, kLive, address, caller, 0};
  enter(count_++);
  const uint64_t total = total_.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t look_at = look_at_.load(std::memory_order_relaxed);
  return total >= look_at && (total - look_at) % kFirstLook == 0;
}

void Observer::freed(uint64_t address) {
  LockGuard guard(mutex_);
  if (seen_.size() == 0) return;
  for (uint32_t* link = &buckets_[bucket_of(address)]; *link != 0;) {
    Seen& seen = seen_[*link - 1];
    if (seen.address != address) {
      link = &seen.next;
      continue;
    }
    seen.to = calls_++;
    *link = seen.next;
    return;
  }
}

void Observer::enter(uint32_t number) {
  uint32_t& bucket = buckets_[bucket_of(seen_[number].address)];
  seen_[number].next = bucket;
  bucket = number + 1;
}

// Times stay as they are; look() counts from the first one.
void Observer::forget_half() {
  constexpr uint32_t kHalf = kMost / 2;
  std::copy(seen_.begin() + kHalf, seen_.end(), seen_.begin());
  std::fill(buckets_.begin(), buckets_.end(), 0);
  for (uint32_t i = 0; i < kHalf; ++i) {
    if (seen_[i].to == kLive) enter(i);
  }
  count_ = kHalf;
}

bool Observer::look(Observed* out) {
  LockGuard guard(mutex_);
  const uint64_t total = total_.load(std::memory_order_relaxed);
  look_at_.store(total + std::clamp<uint64_t>(total, kFirstLook, kMost / 2),
                 std::memory_order_relaxed);
  if (seen_.size() == 0 || count_ == 0 || !out->make(count_)) return false;
  const uint64_t first = seen_[0].from;
  out->calls = calls_ - first;
  for (uint32_t i = 0; i < count_; ++i) {
    const Seen& seen = seen_[i];
    const uint64_t to = seen.to == kLive ? out->calls : seen.to - first;
    out->lives[i] = {.from = seen.from - first, .to = to, .bytes = seen.bytes};
    out->origins[i] = seen.caller.origin;
    out->phases[i] = seen.caller.phase;
    out->threads[i] = static_cast<uint16_t>(seen.caller.thread);
  }
  return true;
}

// --- plans of an iteration ---

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
