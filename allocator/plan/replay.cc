// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/replay.h"

#include <algorithm>

namespace cistern::alloc::plan {

void Replay::follow(std::span<const Plan> plans, Ledger* ledger) {
  LockGuard guard(mutex_);
  ledger_ = ledger;
  if (by_thread_ && seldom_followed()) note_replaced();
  if (plans.empty()) doubled_ = 0;
  requests_ = since_left_ = silent_at_ = period_ = plan_bytes_ = 0;
  outside_.store(0, std::memory_order_relaxed);
  seldom_.store(0, std::memory_order_relaxed);
  followed_.store(0, std::memory_order_relaxed);
  for (Thread& thread : threads_) thread = {};
  const auto count = static_cast<unsigned>(std::min<size_t>(plans.size(), kMostPlans));
  for (unsigned i = 0; i < count; ++i) {
    ways_[i] = {&plans[i], plan_bytes_, 0, 0, kNobody, false};
    period_ += plans[i].head().requests;
    plan_bytes_ += plans[i].head().bytes;
  }
  by_phase_ = count != 0 && plans[0].head().period == Period::phase;
  begins_ = false;
  passed_ = 0;
  by_thread_ = count != 0 && plans[0].head().period == Period::thread;
  once_.store(count != 0 && plans[0].head().period == Period::run, std::memory_order_relaxed);
  plans_.store(count, std::memory_order_release);
}

// Handles any request.
bool Replay::find(uint64_t bytes, unsigned thread_number, uint32_t phase, PlanPlace* place) {
  const LockGuard guard(mutex_);
  if (phase != 0) [[unlikely]]
    note_phase(phase);
  if (plans_.load(std::memory_order_relaxed) == 0) return false;
  const unsigned number = by_thread_ ? thread_number : 0;
  if (number >= kThreads) return false;
  Thread& thread = threads_[number];
  settle(thread);
  if (by_phase_ && phase == 0) [[unlikely]]
    return pass_over(thread), false;
  stop(thread);
  ++requests_;
  Way* const way = way_of(number, bytes);
  thread.latest[thread.seen++ % kRemembered] = bytes;
  if (follows_seldom(thread)) [[unlikely]]
    note_seldom(thread, true);
  if (way == nullptr || !stays(thread, *way, bytes)) {
    if (left()) outside_.store(++since_left_ / period_, std::memory_order_relaxed);
    return false;
  }
  since_left_ = 0;
  outside_.store(0, std::memory_order_relaxed);
  way->last_use = requests_;
  if (way->at == 0) way->placed = false;
  const bool placed = take_place(*way, place);
  if (way->at == way->plan->head().requests) {
    note_end(thread);
    if (way->plan->head().period == Period::run) leave(thread);
  }
  if (way->at != 0 && way->placed) go_on(thread);
  return placed;
}

// The request was the last one of a period.
void Replay::note_end(Thread& thread) {
  ledger_->plan_periods.add();
  thread.way->at = 0;
  if (by_thread_) settle_all();
  thread.ended_at = thread.seen;
  note_seldom(thread, false);
}

void Replay::note_seldom(Thread& thread, bool seldom) {
  if (thread.seldom == seldom) return;
  thread.seldom = seldom;
  seldom ? seldom_.fetch_add(1, std::memory_order_relaxed)
         : seldom_.fetch_sub(1, std::memory_order_relaxed);
}

void Replay::pass_silent_threads() {
  const LockGuard guard(mutex_);
  for (Thread& thread : threads_) settle(thread);
  if (requests_ - silent_at_ < kLeastBeside) return;
  silent_at_ = requests_;
  for (Thread& thread : threads_) {
    if (thread.seen == thread.seen_before) note_seldom(thread, false);
    thread.seen_before = thread.seen;
  }
}

bool Replay::follows_seldom(const Thread& thread) const {
  const uint64_t since = thread.seen - thread.ended_at;
  if (thread.planned != 0) return since > (kSeldom << doubled_) * thread.planned;
  if (left()) return since_left_ >= (kSeldom << doubled_) * period_;
  return since > std::max(kSeldomBeside * period_, kLeastBeside) << doubled_;
}

// Plans of threads that were seldom followed make room for others. Threads that come and go, or
// never repeat anything, must not have new plans made all the time.
void Replay::note_replaced() {
  const bool soon = requests_ <= std::max(kSoon * period_, kLeastSoon) << doubled_;
  if (soon && doubled_ < kMostDoubled) ++doubled_;
  if (!soon && doubled_ > 0) --doubled_;
}

// The place of the plan's next request, if it has one.
inline bool Replay::take_place(Way& way, PlanPlace* place) const {
  const PlannedRequest expected = way.plan->request(way.at++);
  if (expected.outside != 0) return false;
  *place = {way.base + expected.offset, plan_bytes_, !way.placed};
  way.placed = true;
  return true;
}

// Sets the pointers for is_next() to where the thread is in its plan.
void Replay::go_on(Thread& thread) {
  const Way& way = *thread.way;
  thread.next = thread.settled = way.plan->place_of(way.at);
  thread.last = way.plan->place_of(way.plan->head().requests - 1);
  thread.base = way.base;
}

// Keeps Way::last_use of every thread recent to within a period of another thread.
void Replay::settle_all() {
  for (unsigned i = 0; i < plans_.load(std::memory_order_relaxed); ++i) {
    if (ways_[i].thread != kNobody) settle(threads_[ways_[i].thread]);
  }
}

// Counts and remembers the thread's requests since go_on().
void Replay::settle(Thread& thread) {
  if (thread.next == thread.settled) return;
  Way& way = *thread.way;
  const uint64_t count = (thread.next - thread.settled) / sizeof(PlannedRequest);
  for (uint64_t i = count - std::min<uint64_t>(count, kRemembered); i < count; ++i) {
    thread.latest[(thread.seen + i) % kRemembered] = way.plan->request(way.at + i).bytes;
  }
  thread.seen += count;
  way.at += count;
  way.last_use = requests_ += count;
  passed_ = 0;
  thread.settled = thread.next;
}

// The plan that the thread follows, or a free one that begins with this request; nullptr if there
// is none.
Replay::Way* Replay::way_of(unsigned number, uint64_t bytes) {
  Thread& thread = threads_[number];
  if (thread.way != nullptr) {
    if (thread.strayed && begins_) [[unlikely]]
      come_back(thread, *thread.way, bytes);
    return thread.way;
  }
  for (unsigned i = 0; i < plans_.load(std::memory_order_relaxed); ++i) {
    Way& way = ways_[i];
    if (!is_free(way) || !begins_with(thread, *way.plan, bytes)) continue;
    if (way.thread != kNobody) lose(threads_[way.thread]);
    way.thread = number;
    way.at = 0;
    thread.way = &way;
    if (thread.planned == 0) thread.ended_at = thread.seen;
    thread.planned = way.plan->head().requests;
    thread.strayed = false;
    followed_.fetch_add(1, std::memory_order_relaxed);
    ledger_->plan_entered.add();
    return &way;
  }
  return nullptr;
}

// A plan is free if no thread follows it. It is also free if its thread made no request during many
// requests of others: the thread may have ended.
bool Replay::is_free(const Way& way) {
  if (way.thread != kNobody) settle(threads_[way.thread]);
  return way.thread == kNobody ||
         (by_thread_ && requests_ - way.last_use > (kMostOutside + 1) * period_);
}

// Whether the request is the plan's next one. After a single other request the thread still stays
// at its place.
bool Replay::stays(Thread& thread, Way& way, uint64_t bytes) {
  if (way.plan->request(way.at).bytes == bytes) {
    if (thread.strayed) {
      ledger_->plan_entered.add();
      followed_.fetch_add(1, std::memory_order_relaxed);
    }
    thread.strayed = false;
    return true;
  }
  if (begins_ && way.plan->request(0).bytes == bytes) return begin_again(thread, way), true;
  if (!thread.strayed && way.plan->head().period != Period::run) {
    ledger_->plan_left.add();
    followed_.fetch_sub(1, std::memory_order_relaxed);
    thread.strayed = true;
    return false;
  }
  if (!thread.strayed) ledger_->plan_left.add();
  leave(thread);
  return false;
}

// If phases begin with requests of the same size, the first request of the plan may look like a
// later one. The requests before it show which it is.
void Replay::come_back(const Thread& thread, Way& way, uint64_t bytes) {
  if (way.plan->request(0).bytes == bytes && ended_before(thread, *way.plan)) way.at = 0;
}

// The last phase did not go through to the plan's end.
void Replay::begin_again(Thread& thread, Way& way) {
  thread.strayed ? void(followed_.fetch_add(1, std::memory_order_relaxed))
                 : ledger_->plan_left.add();
  ledger_->plan_entered.add();
  thread.strayed = false;
  way.at = 0;
}

// Called without a plan too, because the next plan must not begin in the middle of a phase.
void Replay::note_phase(uint32_t phase) {
  begins_ = by_phase_ && phase > phase_;
  phase_ = std::max(phase, phase_);
  passed_ = 0;
}

// If no phase comes for so long, the program does something else.
void Replay::pass_over(Thread& thread) {
  if (++passed_ <= kMostPassed * period_) return;
  outside_.store(kMostOutside + 1, std::memory_order_relaxed);
  note_seldom(thread, true);
  if (thread.way == nullptr) return;
  if (!thread.strayed) ledger_->plan_left.add();
  leave(thread);
}

void Replay::leave(Thread& thread) {
  if (!thread.strayed) followed_.fetch_sub(1, std::memory_order_relaxed);
  thread.way->thread = kNobody;
  thread.way = nullptr;
  stop(thread);
}

// Its plan goes to another thread. The number may belong to a new thread by now, which has followed
// no plan yet.
void Replay::lose(Thread& thread) {
  leave(thread);
  note_seldom(thread, false);
  thread.planned = 0;
  thread.ended_at = thread.seen;
}

bool Replay::begins_with(const Thread& thread, const Plan& plan, uint64_t bytes) const {
  if (plan.request(0).bytes != bytes) return false;
  if (begins_ || thread.seen == plan.head().before) return true;
  return plan.head().period != Period::run && ended_before(thread, plan);
}

// If a plan has fewer than kRemembered requests, they hold several of its ends.
bool Replay::ended_before(const Thread& thread, const Plan& plan) {
  const uint64_t requests = plan.head().requests;
  for (uint64_t i = 1; i <= kRemembered; ++i) {
    if (i > thread.seen) return false;
    const uint64_t expected = plan.request(requests - 1 - (i - 1) % requests).bytes;
    if (thread.latest[(thread.seen - i) % kRemembered] != expected) return false;
  }
  return true;
}

}  // namespace cistern::alloc::plan
