// SPDX-License-Identifier: Apache-2.0
#include "allocator/shortage.h"

#include <type_traits>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"

namespace cistern::alloc {
namespace {

// How long to wait for a synchronisation that no thread of the program has begun: all threads may
// be waiting here.
constexpr uint64_t kPatienceUnmarkableNs = 100'000'000;
// How long to wait until no work goes on, if the source takes memory back only then.
constexpr uint64_t kPatienceIdleNs = 500'000'000;

}  // namespace

int Shortage::resolve() {
  memory_.ledger->shortages.add();
  waiting_.note_shortage();
  const int code = find_memory();
  if (code == kOutOfMemory) {
    step_ = Step::refused;
    memory_.ledger->out_of_memory.add();
  }
  tell();
  return code;
}

// To move a chunk to this thread takes two calls of the source, and all threads that are short of
// memory look for the same chunks.
bool Shortage::resolve_elsewhere() {
  const bool others =
      memory_.strategy.visit([](const auto& s) { return s.kCutsIdleChunks && s.most_pools() > 1; });
  if (!others || !take_from_other_chunks()) return false;
  memory_.ledger->shortages.add();
  tell();
  return true;
}

// Room in other threads' chunks, or where the usual search does not look, needs no wait and no
// driver call.
bool Shortage::take_from_other_chunks() {
  if (looked_elsewhere_) return false;
  looked_elsewhere_ = true;
  step_ = Step::elsewhere;
  if (!request_.pooled) return false;
  return memory_.strategy.visit([this](auto& strategy) {
    if constexpr (std::remove_reference_t<decltype(strategy)>::kCutsIdleChunks) {
      return strategy.take_from_anywhere(request_, &step_);
    } else {
      return strategy.take_of_other_sizes(request_);
    }
  }) || memory_.plan.pools().take_from_anywhere(request_, &step_);
}

void Shortage::tell() {
  memory_.ledger->served_by[static_cast<int>(step_)].add();
  memory_.source->shortage_ended(step_, request_.bytes);
}

// Grows whenever memory changes hands: with the driver, or from the program to a pool.
uint64_t Shortage::changes() const {
  return memory_.ledger->obtained.get() + memory_.ledger->releases() + memory_.frees();
}

bool Shortage::take_clean() {
  if (!request_.pooled) return false;
  if (memory_.strategy.take_clean(request_)) return true;
  Expandable* units = memory_.strategy.units();
  return units != nullptr && units->take_scattered(request_);
}

// How long a request waits for what was freed to become clean before memory is said to be out. The
// work before a free ends in its time, and without us the free would have waited for it. A free
// whose mark also covers later work may never become clean.
uint64_t Shortage::patience_ns() const {
  const uint64_t all = memory_.source->memory_bytes();
  const bool hopeless = all != 0 && request_.bytes + memory_.ledger->live.get() > all;
  if (hopeless) return 0;
  Reclaim& reclaim = memory_.shared->reclaim;
  const bool tied = reclaim.tied(memory_.party);
  const bool late = reclaim.any_late(memory_.party) || tied;
  const uint64_t most = late ? Deadlines::kRelease : memory_.source->patience_ns();
  const bool may_come =
      tied || memory_.source->marks_may_come() || reclaim.any_outstanding(memory_.party);
  return may_come ? most : std::min(most, kPatienceUnmarkableNs);
}

// Nothing here waits for work that was handed over later and may never end. Other threads fill and
// empty their caches meanwhile. If many are short at once, one of them may hold the memory at each
// attempt.
int Shortage::find_memory() {
  constexpr int kAttempts = 16;
  constexpr uint64_t kCrowdedNs = 500'000'000;
  Shared& shared = *memory_.shared;
  const CountedIn short_of_memory(shared.threads_short_of_memory);
  const CountedIn extra_work(shared.free_extra_work);
  memory_.groups.end_all();
  memory_.flush_garbage();
  memory_.unpark_everything();
  waiting_.ask();
  if (take_clean()) return kSuccess;
  if (take_from_other_chunks()) return kSuccess;
  int code = take_smaller_chunk();
  if (code != kOutOfMemory) return code;
  bool progress = true;
  uint64_t since = 0;
  for (int i = 0; progress && (i < kAttempts || os::now_ns() - since < kCrowdedNs); ++i) {
    if (i == 1) since = os::now_ns();
    const uint64_t before = changes();
    code = take_what_becomes_clean(/*waits=*/i == 0);
    if (code != kOutOfMemory) return code;
    progress = memory_.release_returnable(i == 0 ? kPatienceIdleNs : 0, units_);
    progress |= memory_.source->release_from_other_pools();
    // Memory that another thread took out to release is neither in a pool nor with the driver yet,
    // and may come back to its pool.
    progress |= shared.movers.now() != 0;
    shared.await_moving();
    code = take_fresh_of_any_size();
    if (code != kOutOfMemory) return code;
    progress |= shared.threads_obtaining.load() != 0;
    progress |= changes() != before;
  }
  step_ = Step::elsewhere;
  return take_from_anywhere() ? kSuccess : kOutOfMemory;
}

// If the driver has a smaller chunk, waiting memory is not worth a wait.
int Shortage::take_smaller_chunk() {
  const bool can = memory_.strategy.visit([](const auto& s) { return s.can_ask_for_less(); });
  if (!can || !request_.pooled || memory_.waiting_bytes() == 0) return kOutOfMemory;
  memory_.release_clean(units_);
  return take_fresh_of_any_size();
}

// Repeats as long as waiting memory becomes clean.
int Shortage::take_what_becomes_clean(bool waits) {
  do {
    step_ = Step::clean;
    if (take_clean()) return kSuccess;
    step_ = Step::returned;
    if (!memory_.release_clean(units_)) continue;
    const int code = memory_.take_fresh(request_);
    if (code != kOutOfMemory) return code;
  } while (waiting_.wait(waits ? patience_ns() : 0));
  return kOutOfMemory;
}

int Shortage::take_fresh_of_any_size() {
  if (!request_.pooled) return memory_.supply.obtain_direct(request_);
  return memory_.strategy.visit(
      [&](auto& s) { return s.take_fresh_of_any_size(request_, &step_); });
}

// The last resort if the driver has no chunk: a block anywhere that is clean, or will be soon. It
// also serves a request that should not be pooled, because without us the program would not run
// short.
bool Shortage::take_from_anywhere() {
  return memory_.strategy.visit([&](auto& strategy) {
    const uint64_t start = os::now_ns();
    bool found = memory_.take_from_anywhere(request_, &step_);
    if (found || !strategy.worth_waiting(request_)) return found;
    while (!found) {
      const uint64_t waited = os::now_ns() - start;
      if (waited >= patience_ns() || !waiting_.wait(patience_ns() - waited)) break;
      found = memory_.take_from_anywhere(request_, &step_);
    }
    return found;
  });
}

}  // namespace cistern::alloc
