// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/reclaim.h"

#include <algorithm>
#include <climits>

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

// The pauses of a thread that polls for work: short at first, since most work is short.
constexpr uint64_t kFirstPauseNs = 20'000;
constexpr uint64_t kLongestPauseNs = 1'000'000;
// How often a sleeping thread checks whether another one still polls.
constexpr uint64_t kTakeOverNs = 10'000'000;

uint64_t pause_after(uint64_t waited_ns) {
  return std::clamp(waited_ns / 8, kFirstPauseNs, kLongestPauseNs);
}

// True if the value was lower.
bool raise_to(std::atomic<Ticket>& value, Ticket ticket) {
  Ticket seen = value.load(std::memory_order_relaxed);
  while (seen < ticket) {
    if (value.compare_exchange_weak(seen, ticket, std::memory_order_seq_cst)) return true;
  }
  return false;
}

}  // namespace

// --- contexts ---

void Reclaim::wait_for_turn(Timeline& t) {
  os::wait_while([&] { return !try_turn(t); });
}

void Reclaim::join(uint32_t context, MemorySource* source, bool was_there) {
  Timeline& t = timelines_[context];
  wait_for_turn(t);
  // No work of a context that did not exist can touch a block freed before now.
  const Ticket end = close() + 1;
  for (auto* moment : {&t.clean_end, &t.freed_end, &t.passed_end, &t.copies_end, &t.copies_lost_end,
                       &t.marked_end, &t.late_end}) {
    moment->store(end, std::memory_order_relaxed);
  }
  if (was_there) {
    t.passed_end.store(0, std::memory_order_relaxed);
    t.marked_end.store(0, std::memory_order_relaxed);
  }
  for (auto& tie : t.ties) tie.store(0, std::memory_order_relaxed);
  t.tied.store(false, std::memory_order_relaxed);
  t.outstanding.store(0, std::memory_order_relaxed);
  t.first = 0;
  t.source.store(source, std::memory_order_release);
  int highest_before = highest();
  const int number = static_cast<int>(context);
  while (highest_before <= number && !highest_.compare_exchange_weak(highest_before, number + 1)) {
  }
  end_turn(t);
}

void Reclaim::leave(uint32_t context) {
  Timeline& t = timelines_[context];
  wait_for_turn(t);
  t.source.store(nullptr, std::memory_order_release);
  t.outstanding.store(0, std::memory_order_relaxed);  // its events die with the context
  end_turn(t);
  moved(t);
  for (int i = 0, n = highest(); i < n; ++i) {
    if (timelines_[i].ties[context].exchange(0) != 0) recompute(timelines_[i]);
  }
}

void Reclaim::settle(uint32_t context) {
  between_calls(context, [] {});
}

void Reclaim::passed(uint32_t context, Ticket ticket) {
  Timeline& t = timelines_[context];
  raise_to(t.passed_end, ticket + 1);
  recompute(t);
  recompute_tied_to(context);
}

// --- ties ---

// As after a free in the worker's context, its work so far gets a mark before its later work.
// Otherwise the tie would last as long as the later work.
void Reclaim::touched(uint32_t owner, uint32_t worker) {
  Timeline& t = timelines_[owner];
  LockGuard guard(ties_mutex_);
  begin_tie(t, worker);
  const Ticket now = open_.load(std::memory_order_seq_cst);
  raise_to(t.ties[worker], now + 1);
  t.tied.store(true, std::memory_order_seq_cst);
  note_freed(worker, now);
}

// With the lock, before the tie can be seen. An existing tie began earlier and keeps its beginning.
void Reclaim::begin_tie(Timeline& t, uint32_t worker) {
  if (t.ties[worker].load(std::memory_order_seq_cst) == 0) t.tie_begins[worker].store(close() + 1);
}

void Reclaim::reaches(uint32_t owner, uint32_t worker, bool on) {
  Timeline& t = timelines_[owner];
  LockGuard guard(ties_mutex_);
  begin_tie(t, worker);
  const Ticket now = open_.load(std::memory_order_seq_cst);
  if (!on) raise_to(timelines_[worker].copies_lost_end, now + 1);  // before the tie can be seen
  t.ties[worker].store(on ? kEver : now + 1);
  t.tied.store(true, std::memory_order_seq_cst);
  if (!on) note_freed(worker, now);
}

void Reclaim::reached_since_ever(uint32_t owner, uint32_t worker) {
  Timeline& t = timelines_[owner];
  LockGuard guard(ties_mutex_);
  t.tie_begins[worker].store(0);
  t.ties[worker].store(kEver);
  t.tied.store(true, std::memory_order_seq_cst);
}

void Reclaim::copies_done(uint32_t worker, Ticket end) {
  raise_to(timelines_[worker].copies_end, end);
  recompute_tied_to(worker);
}

void Reclaim::only_marks_untie(uint32_t worker) {
  raise_to(timelines_[worker].copies_lost_end, open() + 1);
}

bool Reclaim::is_over(Ticket tie, const Timeline& worker) {
  const Ticket passed = worker.passed_end.load(std::memory_order_acquire);
  if (passed >= tie) return true;
  return worker.copies_end.load() >= tie && worker.copies_lost_end.load() <= passed;
}

template <typename Visitor>
void Reclaim::for_each_tied(Timeline& t, Visitor visit) {
  if (!t.tied.load(std::memory_order_seq_cst)) return;
  for (int i = 0, n = highest(); i < n; ++i) {
    const Timeline& worker = timelines_[i];
    Ticket tie = t.ties[i].load(std::memory_order_seq_cst);
    if (tie == 0 || worker.source.load(std::memory_order_acquire) == nullptr) continue;
    if (is_over(tie, worker)) {
      LockGuard guard(ties_mutex_);
      t.ties[i].compare_exchange_strong(tie, 0);
    } else {
      visit(i, tie);
    }
  }
}

bool Reclaim::tied(uint32_t context) {
  bool any = false;
  for_each_tied(timelines_[context], [&](int, Ticket) { any = true; });
  return any;
}

bool Reclaim::tied_to(uint32_t context, uint32_t worker) {
  bool any = false;
  for_each_tied(timelines_[context],
                [&](int tied, Ticket) { any |= static_cast<uint32_t>(tied) == worker; });
  return any;
}

// Reads the ties after this context's own tickets: work that was handed over before a block was
// freed is tied before any ticket that covers the free is closed. A tie does not delay blocks that
// were freed before it began.
void Reclaim::recompute(Timeline& t) {
  if (frozen()) return;
  const Ticket now = open_.load(std::memory_order_seq_cst);  // a party without work has no end
  Ticket end = std::min(t.passed_end.load(std::memory_order_seq_cst), now);
  for_each_tied(t, [&](int worker, Ticket) {
    const Ticket passed = timelines_[worker].passed_end.load(std::memory_order_acquire);
    end = std::min(end, std::max(passed, t.tie_begins[worker].load()));
  });
  // A thread that is about to sleep counts itself, then looks at clean_end once more.
  if (raise_to(t.clean_end, end) && t.sleepers.load(std::memory_order_seq_cst) != 0) moved(t);
}

void Reclaim::recompute_tied_to(uint32_t context) {
  for (int i = 0, n = highest(); i < n; ++i) {
    if (timelines_[i].ties[context].load(std::memory_order_seq_cst) != 0) recompute(timelines_[i]);
  }
}

// --- marks ---

void Reclaim::note_freed(uint32_t context, Ticket ticket) {
  raise_to(timelines_[context].freed_end, ticket + 1);
  if (!any_unmarked_.load(std::memory_order_seq_cst)) set_any_unmarked(true);
}

void Reclaim::parked_may_leave() {
  const Ticket gone = graphs_.covers_gone();
  for (int i = 0, n = highest(); i < n; ++i) {
    Timeline& t = timelines_[i];
    const bool marked = gone < t.marked_end.load(std::memory_order_acquire) ||
                        gone < t.clean_end.load(std::memory_order_acquire);
    if (marked || !graphs_.parked(i).any()) continue;
    note_freed(i, gone);
    raise_to(t.late_end, gone + 1);  // later work may have begun before the graph went
  }
}

bool Reclaim::unmarked(uint32_t context) const {
  const Timeline& t = timelines_[context];
  const Ticket freed = t.freed_end.load(std::memory_order_seq_cst);
  return freed > t.marked_end.load(std::memory_order_acquire) &&
         freed > t.clean_end.load(std::memory_order_acquire);
}

void Reclaim::unmarked_is_late(uint32_t context) {
  Timeline& t = timelines_[context];
  if (unmarked(context)) raise_to(t.late_end, t.freed_end.load(std::memory_order_seq_cst));
}

bool Reclaim::any_late(uint32_t context) const {
  const Timeline& t = timelines_[context];
  return t.late_end.load(std::memory_order_acquire) > t.clean_end.load(std::memory_order_acquire);
}

bool Reclaim::mark(uint32_t context, Ticket newest, bool at_once) {
  Timeline& t = timelines_[context];
  bool all = mark_work(t, newest, at_once);
  for_each_tied(t, [&](int worker, Ticket tie) {
    if (newest < t.tie_begins[worker].load()) return;
    all &= mark_work(timelines_[worker], std::min(newest, tie - 1), at_once);
  });
  // If the context has passed the ticket already, only those tied to it had to be marked.
  const bool passed = t.passed_end.load(std::memory_order_acquire) > newest;
  if (all && passed) raise_to(t.marked_end, newest + 1);
  return all;
}

bool Reclaim::mark_freed(uint32_t context) {
  const Ticket end = timelines_[context].freed_end.load(std::memory_order_seq_cst);
  return end == 0 || mark(context, end - 1);
}

// The thread with the turn calls the source. That takes microseconds, milliseconds if the thread is
// not scheduled, or as long as the source is blocked.
bool Reclaim::wait_a_moment_for_turn(Timeline& t) {
  constexpr uint64_t kMomentNs = 5'000'000;
  return os::wait_until([&] { return try_turn(t); }, kMomentNs);
}

bool Reclaim::mark_work(Timeline& t, Ticket newest, bool at_once) {
  if (t.passed_end.load(std::memory_order_acquire) > newest ||
      t.marked_end.load(std::memory_order_acquire) > newest) {
    return true;
  }
  if (!try_turn(t) && (at_once || !wait_a_moment_for_turn(t))) return false;
  const bool made = t.marked_end.load(std::memory_order_acquire) > newest || record(t);
  if (at_once && made) poll_work(t);
  end_turn(t);
  return made;
}

// With the turn. If there is no room, this mark replaces the newest one: it covers the same frees,
// which become late. The other marks stay.
bool Reclaim::record(Timeline& t) {
  MemorySource* source = t.source.load(std::memory_order_relaxed);
  if (t.outstanding.load(std::memory_order_relaxed) == Timeline::kMarks) poll_work(t);
  const Ticket ticket = close();
  Mark made;
  if (source == nullptr || !source->mark(&made)) return false;
  int count = t.outstanding.load(std::memory_order_relaxed);
  if (count == Timeline::kMarks) {
    --count;
    const Timeline::Outstanding& newest = t.marks[(t.first + count) % Timeline::kMarks];
    raise_to(t.late_end, newest.ticket + 1);
    source->forget(newest.mark);
  }
  t.marks[(t.first + count) % Timeline::kMarks] = {ticket, made};
  t.outstanding.store(count + 1, std::memory_order_release);
  t.marks_made.own_add();
  raise_to(t.marked_end, ticket + 1);
  return true;
}

// With the turn. Marks that have passed count as outstanding until clean() has moved. So a thread
// that finds none outstanding need not poll, nor wait for a thread that does.
void Reclaim::poll_work(Timeline& t) {
  MemorySource* source = t.source.load(std::memory_order_relaxed);
  int left = t.outstanding.load(std::memory_order_relaxed);
  if (source == nullptr || left == 0) return;
  for (; left > 0; --left) {
    const Timeline::Outstanding& oldest = t.marks[t.first];
    t.queries_made.own_add();
    const MarkState state = source->query(oldest.mark);
    if (state == MarkState::pending) break;
    if (state == MarkState::passed) raise_to(t.passed_end, oldest.ticket + 1);
    // The frees that this mark covered need another one.
    if (state == MarkState::failed) {
      t.marked_end.store(t.passed_end.load());
      set_any_unmarked(true);
    }
    source->forget(oldest.mark);
    t.first = (t.first + 1) % Timeline::kMarks;
  }
  recompute(t);
  recompute_tied_to(static_cast<uint32_t>(&t - timelines_));
  t.outstanding.store(left, std::memory_order_release);
}

void Reclaim::poll_if_marked(Timeline& t) {
  if (t.outstanding.load(std::memory_order_acquire) == 0 || !try_turn(t)) return;
  poll_work(t);
  end_turn(t);
}

bool Reclaim::poll(uint32_t context) {
  Timeline& t = timelines_[context];
  const Ticket before = t.clean_end.load(std::memory_order_acquire);
  poll_if_marked(t);
  MemorySource* source = t.source.load(std::memory_order_acquire);
  if (source != nullptr && t.tied.load(std::memory_order_seq_cst)) source->look_at_ties();
  for_each_tied(t, [&](int worker, Ticket) { poll_if_marked(timelines_[worker]); });
  return t.clean_end.load(std::memory_order_acquire) != before;
}

uint64_t Reclaim::sum(Counter Timeline::*counter) const {
  uint64_t all = 0;
  for (int i = 0, n = highest(); i < n; ++i) all += (timelines_[i].*counter).get();
  return all;
}

// --- waiting ---

void Reclaim::moved(Timeline& t) {
  t.moves.fetch_add(1, std::memory_order_seq_cst);
  if (t.sleepers.load(std::memory_order_seq_cst) == 0) return;
  os::futex_wake(reinterpret_cast<uint32_t*>(&t.moves), INT_MAX);
}

bool Reclaim::wait(uint32_t context, Ticket target, uint64_t limit_ns) {
  Timeline& t = timelines_[context];
  const uint64_t start = os::now_ns();
  bool polls = false;
  while (true) {
    const uint32_t seen = t.moves.load(std::memory_order_seq_cst);
    if (!polls) polls = !t.polled.exchange(true, std::memory_order_acquire);
    if (polls) poll(context);
    const uint64_t waited = os::now_ns() - start;
    MemorySource* source = t.source.load(std::memory_order_acquire);
    const bool ended = frozen() || source == nullptr || source->ending();
    if (clean(context) >= target || ended || waited >= limit_ns) break;
    const uint64_t pause = polls ? pause_after(waited) : kTakeOverNs;
    t.sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (t.clean_end.load(std::memory_order_seq_cst) <= target) {
      const uint64_t most = std::min(pause, limit_ns - waited);
      os::futex_wait(reinterpret_cast<uint32_t*>(&t.moves), seen, most);
    }
    t.sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
  if (polls) {
    t.polled.store(false, std::memory_order_release);
    moved(t);
  }
  return clean(context) >= target;
}

}  // namespace cistern::alloc
