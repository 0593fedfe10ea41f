// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/reclaim.h"

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

void raise_to(std::atomic<Ticket>& value, Ticket ticket) {
  Ticket seen = value.load(std::memory_order_relaxed);
  while (seen < ticket && !value.compare_exchange_weak(seen, ticket, std::memory_order_acq_rel)) {
  }
}

}  // namespace

void Reclaim::wait_for_turn() {
  while (!try_turn()) os::sleep_ns(1000);
}

Timeline* Reclaim::join(MemorySource* source) {
  wait_for_turn();
  Timeline* joined = nullptr;
  for (int i = 0; i < kMaxContexts && joined == nullptr; ++i) {
    Timeline& slot = timelines_[i];
    if (slot.source.load(std::memory_order_relaxed) != nullptr) continue;
    // No work of a context that did not exist can touch a block freed before now.
    slot.passed.store(close(), std::memory_order_relaxed);
    slot.count = 0;
    if (clean_end_.load(std::memory_order_relaxed) == 0) {
      clean_end_.store(slot.passed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    slot.source.store(source, std::memory_order_release);
    if (i >= highest()) highest_.store(i + 1, std::memory_order_release);
    joined = &slot;
  }
  if (joined == nullptr) freeze();
  end_turn();
  return joined;
}

void Reclaim::leave(Timeline* timeline) {
  wait_for_turn();
  timeline->source.store(nullptr, std::memory_order_release);
  count_marks(-timeline->count);
  timeline->count = 0;  // its events die with the context
  end_turn();
  recompute_clean();
}

void Reclaim::settle() {
  wait_for_turn();
  end_turn();
}

void Reclaim::passed(Timeline* timeline, Ticket ticket) {
  raise_to(timeline->passed, ticket);
  recompute_clean();
}

void Reclaim::recompute_clean() {
  if (frozen()) return;
  Ticket lowest = open_.load(std::memory_order_seq_cst) - 1;
  for (int i = 0, n = highest(); i < n; ++i) {
    const Timeline& t = timelines_[i];
    if (t.source.load(std::memory_order_acquire) == nullptr) continue;
    const Ticket passed = t.passed.load(std::memory_order_acquire);
    if (passed < lowest) lowest = passed;
  }
  raise_to(clean_end_, lowest + 1);
}

void Reclaim::set_newest_graph(Epoch newest) {
  const bool releases = newest_graph_.load(std::memory_order_relaxed) > newest;
  // Before anyone can see that a graph has gone, its work is covered.
  if (releases) raise_to(gone_graphs_ticket_, stamp());
  newest_graph_.store(newest, std::memory_order_release);
  if (!everything_diverted_.load()) diverted_before_.store(newest, std::memory_order_release);
  if (releases) graphs_gone_.fetch_add(1, std::memory_order_release);
}

void Reclaim::divert_everything() {
  everything_diverted_.store(true);
  diverted_before_.store(kEverything, std::memory_order_release);
}

bool Reclaim::mark(Ticket newest) {
  if (marked_.load(std::memory_order_acquire) >= newest) return true;
  if (!try_turn()) return false;
  const Ticket ticket = close();
  bool all = true;
  for (int i = 0, n = highest(); i < n; ++i) {
    Timeline& t = timelines_[i];
    MemorySource* source = t.source.load(std::memory_order_relaxed);
    if (source == nullptr || t.passed.load(std::memory_order_relaxed) >= ticket) continue;
    Mark made;
    if (!source->mark(&made)) {
      all = false;
      continue;
    }
    // No room: the newest gives way to this one, which covers all that it did. The others go on.
    if (t.count == Timeline::kMarks) {
      source->forget(t.marks[--t.count].mark);
    } else {
      count_marks(1);
    }
    marks_made_.fetch_add(1, std::memory_order_relaxed);
    t.marks[t.count++] = {ticket, made};
  }
  if (all) raise_to(marked_, ticket);
  end_turn();
  return all;
}

int Reclaim::poll_one(Timeline& t) {
  MemorySource* source = t.source.load(std::memory_order_relaxed);
  if (source == nullptr) return 0;
  const int before = t.count;
  while (t.count > 0) {
    queries_made_.fetch_add(1, std::memory_order_relaxed);
    const MarkState state = source->query(t.marks[0].mark);
    if (state == MarkState::pending) break;
    if (state == MarkState::passed) raise_to(t.passed, t.marks[0].ticket);
    // What this mark stood for needs another one.
    if (state == MarkState::failed) marked_.store(t.passed.load(), std::memory_order_release);
    source->forget(t.marks[0].mark);
    --t.count;
    for (int i = 0; i < t.count; ++i) t.marks[i] = t.marks[i + 1];
  }
  return before - t.count;
}

// Marks that were answered are outstanding until clean() has moved: who finds none outstanding need
// not ask, nor wait for another thread that did.
bool Reclaim::poll() {
  const Ticket before = clean();
  if (outstanding_.load(std::memory_order_acquire) != 0 && try_turn()) {
    int answered = 0;
    for (int i = 0, n = highest(); i < n; ++i) answered += poll_one(timelines_[i]);
    recompute_clean();
    count_marks(-answered);
    end_turn();
  }
  return clean() != before;
}

bool Reclaim::wait(Ticket target, uint64_t limit_ns) {
  constexpr uint64_t kPauseNs = 20'000;
  const uint64_t start = os::now_ns();
  while (true) {
    poll();
    if (clean() >= target) return true;
    if (os::now_ns() - start >= limit_ns) return false;
    os::sleep_ns(kPauseNs);
  }
}

}  // namespace cistern::alloc
