// SPDX-License-Identifier: Apache-2.0
#include "allocator/shortage.h"

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

// How long a small request waits for blocks in slabs that are partly live (everything else was
// given to the driver, whose free waits by itself).
constexpr uint64_t kShortageWaitNs = 2'000'000'000;

}  // namespace

int Shortage::resolve() {
  memory_.ledger->shortages.add();
  const int code = find_memory();
  if (code == kOutOfMemory) {
    step_ = Step::refused;
    memory_.ledger->out_of_memory.add();
  }
  memory_.ledger->served_by[static_cast<int>(step_)].add();
  memory_.source->shortage_ended(step_, request_.bytes);
  return code;
}

// Grows whenever memory changes hands: with the driver, or from the program to a pool.
uint64_t Shortage::changes() const {
  return memory_.ledger->obtained.get() + memory_.ledger->releases() + memory_.frees();
}

// First what the driver can take without waiting for work that may never end. Other threads fill
// and empty their caches meanwhile.
int Shortage::find_memory() {
  constexpr int kAttempts = 16;
  Shared& shared = *memory_.shared;
  const CountedIn short_of_memory(shared.threads_short_of_memory);
  const CountedIn extra_work(shared.free_extra_work);
  memory_.flush_garbage();
  waiting_.ask();
  if (take_clean()) return kSuccess;
  int code = take_smaller_chunk();
  if (code != kOutOfMemory) return code;
  bool progress = true;
  for (int i = 0; i < kAttempts && progress; ++i) {
    const uint64_t before = changes();
    code = take_what_becomes_clean(i == 0 ? kShortageWaitNs : 0);
    if (code != kOutOfMemory) return code;
    progress = memory_.release_everything();
    progress |= memory_.source->release_from_other_pools();
    // What another thread took out to release is neither in a pool nor the driver's yet, and may
    // come back to its pool.
    progress |= shared.threads_moving.load() != 0;
    shared.await_moving();
    code = take_fresh_of_any_size();
    if (code != kOutOfMemory) return code;
    progress |= shared.threads_obtaining.load() != 0;
    progress |= changes() != before;
  }
  step_ = Step::elsewhere;
  return take_from_anywhere() ? kSuccess : kOutOfMemory;
}

// What waits for earlier work is worth no wait where a smaller chunk can be had at once.
int Shortage::take_smaller_chunk() {
  const bool can = memory_.strategy.visit([](const auto& s) { return s.can_ask_for_less(); });
  if (!can || !request_.pooled || memory_.waiting_bytes() == 0) return kOutOfMemory;
  memory_.release_clean();
  return take_fresh_of_any_size();
}

// The driver's own free waits for everything, also for work that began after the program's free and
// may never end. So what gets clean goes first, as long as that makes room and goes on.
int Shortage::take_what_becomes_clean(uint64_t patience_ns) {
  do {
    step_ = Step::clean;
    if (take_clean()) return kSuccess;
    step_ = Step::returned;
    if (!memory_.release_clean()) continue;
    const int code = memory_.take_fresh(request_);
    if (code != kOutOfMemory) return code;
  } while (waiting_.wait(patience_ns));
  return kOutOfMemory;
}

int Shortage::take_fresh_of_any_size() {
  if (!request_.pooled) return memory_.obtain_direct(request_);
  return memory_.strategy.visit(
      [&](auto& s) { return s.take_fresh_of_any_size(request_, &step_); });
}

// What is left when no chunk can be had any more: a block that is clean, or will be soon, anywhere.
// What is parked is lost to the program only here: with the driver alone it would have been handed
// out again long ago. A request that is not to be pooled has no other way now: the program would
// not run short without us.
bool Shortage::take_from_anywhere() {
  return memory_.strategy.visit([&](auto& strategy) {
    const uint64_t start = os::now_ns();
    bool found = strategy.take_from_anywhere(request_, &step_);
    if (found || !strategy.worth_waiting(request_)) return found;
    strategy.for_each_pool([&](auto& pool) { pool.unpark_everything(memory_.shared->reclaim); });
    while (!found) {
      const uint64_t waited = os::now_ns() - start;
      if (waited >= kShortageWaitNs || !waiting_.wait(kShortageWaitNs - waited)) break;
      found = strategy.take_from_anywhere(request_, &step_);
    }
    return found;
  });
}

}  // namespace cistern::alloc
