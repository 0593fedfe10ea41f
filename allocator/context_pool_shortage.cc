// SPDX-License-Identifier: Apache-2.0
// The way of an allocation once memory is out, or the cap reached.
#include "allocator/base/os.h"
#include "allocator/context_pool.h"

namespace cistern::alloc {
namespace {

// Once memory is out: how long a small request waits for blocks in slabs that are partly live
// (everything else was given to the driver, whose free waits by itself).
constexpr uint64_t kShortageWaitNs = 2'000'000'000;

}  // namespace

int ContextPool::shortage(Request& request) {
  ledger_->shortages.add();
  Step step = Step::clean;
  const int code = find_memory(request, &step);
  if (code == kOutOfMemory) {
    step = Step::refused;
    ledger_->out_of_memory.add();
  }
  ledger_->served_by[static_cast<int>(step)].add();
  source_->shortage_ended(step, request.bytes);
  return code;
}

// Grows whenever memory changes hands: with the driver, or from the program to a pool.
uint64_t ContextPool::changes() const {
  return ledger_->obtained.get() + ledger_->releases() + frees();
}

// Everything that is not live goes to the driver, first what it can take without waiting for work
// that may never end, and every corner is looked into. Other threads fill and empty their caches
// meanwhile, so as long as anything was returned or obtained, by whomever, there is another
// attempt.
int ContextPool::find_memory(Request& request, Step* step) {
  constexpr int kAttempts = 16;
  const CountedIn threads_short_of_memory(shared_->threads_short_of_memory),
      extra_work(shared_->free_extra_work);
  flush_garbage();
  ask_for_clean();
  if (request.pooled && take_clean(request)) return kSuccess;
  int code = take_smaller_chunk(request, step);
  if (code != kOutOfMemory) return code;
  bool progress = true;
  for (int i = 0; i < kAttempts && progress; ++i) {
    const uint64_t before = changes();
    code = take_what_becomes_clean(request, i == 0 ? kShortageWaitNs : 0, step);
    if (code != kOutOfMemory) return code;
    progress = release_everything();
    progress |= source_->release_from_other_pools();
    // What another thread took out to return is neither in a pool nor the driver's yet, and may
    // come back to its pool.
    progress |= shared_->threads_moving.load() != 0;
    shared_->await_moving();
    code = take_fresh_of_any_size(request, step);
    if (code != kOutOfMemory) return code;
    progress |= shared_->threads_obtaining.load() != 0;
    progress |= changes() != before;
  }
  *step = Step::elsewhere;
  return take_from_anywhere(request, step) ? kSuccess : kOutOfMemory;
}

// What waits for earlier work is worth no wait where a smaller chunk can be had at once.
int ContextPool::take_smaller_chunk(Request& request, Step* step) {
  const bool can =
      strategy_.visit([](const auto& strategy) { return strategy.can_ask_for_less(); });
  if (!can || !request.pooled || waiting_bytes() == 0) return kOutOfMemory;
  release_clean();
  return take_fresh_of_any_size(request, step);
}

// The driver's own free waits for everything, also for work that began after the program's free and
// may never end. So what gets clean goes first, as long as that makes room and goes on.
int ContextPool::take_what_becomes_clean(Request& request, uint64_t patience_ns, Step* step) {
  do {
    *step = Step::clean;
    if (request.pooled && take_clean(request)) return kSuccess;
    *step = Step::returned;
    if (!release_clean()) continue;
    const int code = take_fresh(request);
    if (code != kOutOfMemory) return code;
  } while (wait_for_clean(patience_ns));
  return kOutOfMemory;
}

int ContextPool::take_fresh_of_any_size(Request& request, Step* step) {
  if (!request.pooled) return obtain_direct(request);
  return strategy_.visit(
      [&](auto& strategy) { return strategy.take_fresh_of_any_size(request, step); });
}

// What is left when no chunk can be had any more: a corner that is clean, or will be soon. What is
// parked is lost to the program only here: with the driver alone it would have been handed out
// again long ago. A request that is not to be pooled has no other way now: the program would not
// run short without us.
bool ContextPool::take_from_anywhere(Request& request, Step* step) {
  return strategy_.visit([&](auto& strategy) {
    const uint64_t start = os::now_ns();
    bool found = strategy.take_from_anywhere(request, step);
    if (found || !strategy.worth_waiting(request)) return found;
    strategy.for_each_pool([&](auto& pool) { pool.unpark_everything(shared_->reclaim); });
    while (!found) {
      const uint64_t waited = os::now_ns() - start;
      if (waited >= kShortageWaitNs || !wait_for_clean(kShortageWaitNs - waited)) break;
      found = strategy.take_from_anywhere(request, step);
    }
    return found;
  });
}

bool ContextPool::release_clean() {
  // What is taken out and put back is missing meanwhile, to other threads that are short.
  if (!source_->can_release_clean()) return false;
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply_);
  strategy_.visit([&](auto& strategy) { strategy.collect_clean(&chunks); });
  supply_.cache.collect_clean(shared_->reclaim, &chunks);
  return supply_.release_clean(&chunks);
}

bool ContextPool::release_everything() {
  flush_garbage();
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply_);
  strategy_.visit([&](auto& strategy) { strategy.collect_all(&chunks); });
  supply_.cache.collect_all(&chunks);
  return supply_.release(&chunks);
}

}  // namespace cistern::alloc
