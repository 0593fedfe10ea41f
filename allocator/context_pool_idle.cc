// SPDX-License-Identifier: Apache-2.0
// Memory that lies idle, and its way back to the driver: in calls of the program that may wait for
// the device anyway, and in work_in_background().
#include "allocator/context_pool.h"

namespace cistern::alloc {

// In a free, now and then.
void ContextPool::tidy() {
  if (shared_->idle.on) source_->request_background_work(/*soon=*/false);
  if (defers_) return defer();
  sweep_if_due();
  release_excess_if_over_budget();
}

void ContextPool::release_excess_if_over_budget() {
  if (strategy_.visit([](const auto& strategy) { return strategy.over_budget(); })) {
    release_excess_now();
  }
}

void ContextPool::sweep_if_due() {
  const IdleRelease& idle = shared_->idle;
  if (idle.on && swept_.load(std::memory_order_relaxed) != idle.now()) sweep(WorkedBy::call);
}

// The first free since the work was done rings for it; where nobody comes it is done here.
void ContextPool::defer() {
  const bool first = !deferred_.exchange(true);
  if (source_->request_background_work(/*soon=*/first)) return;
  do_deferred(WorkedBy::call);
  sweep_if_due();
  release_excess_if_over_budget();
}

void ContextPool::do_deferred(WorkedBy worked_by) {
  if (!deferred_.exchange(false)) return;
  merge(/*spare_too=*/false);
  mark_if_much_waits();
  ledger_->deferred_done[static_cast<int>(worked_by)].add();
}

// In an allocation, which must not wait for the device.
void ContextPool::release_clean_excess() {
  if (!source_->can_release_clean()) return;
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply_);
  strategy_.visit([&](auto& strategy) { strategy.collect_excess_idle(&chunks); });
  supply_.release_clean(&chunks);
}

bool ContextPool::work_in_background() {
  const IdleRelease& idle = shared_->idle;
  do_deferred(WorkedBy::background);
  if (idle.on) {
    sweep(WorkedBy::background);
  } else {
    ask_for_clean();
    merge(/*spare_too=*/false);
  }
  if (defers_) release_excess_if_over_budget();
  const Usage now = usage();
  const bool more_to_come = now.parked != 0 || (now.waiting != 0 && !shared_->reclaim.frozen());
  return more_to_come || (idle.on && ledger_->idle_chunks.get() > idle.keep);
}

// What became clean since; with `spare_too` no empty slab stays one. Where fills are gathered
// nothing is clean before it is filled.
void ContextPool::merge(bool spare_too) {
  const bool fills = supply_.filler.gathers() && !source_->refuses_release();
  const ChunkSupply::Moving moving(supply_);
  supply_.cache.refresh(shared_->reclaim);
  strategy_.visit([=](auto& strategy) {
    if (fills) strategy.fill_freed();
    strategy.refresh(spare_too);
  });
}

// One thread at a time; the others have nothing to wait for.
void ContextPool::sweep(WorkedBy worked_by) {
  if (sweeping_.exchange(true, std::memory_order_acquire)) return;
  const Tick now = shared_->idle.now();
  ask_for_clean();
  merge(/*spare_too=*/true);
  release_aged(now, worked_by);
  swept_.store(now, std::memory_order_relaxed);
  sweeping_.store(false, std::memory_order_release);
}

// One chunk after the other, the oldest first: until its turn comes each one can be used.
void ContextPool::release_aged(Tick now, WorkedBy worked_by) {
  while (true) {
    const IdleChunks idle =
        strategy_.visit([now](auto& strategy) { return strategy.see_idle(now); });
    publish_idle(idle.bytes);
    const bool too_much = idle.bytes != 0 && ledger_->idle_chunks.get() > shared_->idle.keep;
    if (!too_much || idle.oldest < shared_->idle.due || source_->refuses_release()) return;
    if (shared_->threads_counting.load() != 0) return;  // there is another sweep
    ChunkList chunk;
    const ChunkSupply::Moving moving(supply_);
    strategy_.visit([&](auto& strategy) { strategy.collect_aged(now, idle.oldest, &chunk); });
    if (chunk.empty()) return;  // another thread has just taken it
    const uint64_t bytes = chunk.first()->size();
    const bool gone =
        source_->can_release_clean() ? supply_.release_clean(&chunk) : supply_.release(&chunk);
    if (!gone) return;
    ledger_->aged[static_cast<int>(worked_by)].add();
    ledger_->aged_bytes[static_cast<int>(worked_by)].add(bytes);
  }
}

// What the garbage releases becomes idle without any free.
void ContextPool::garbage_released() {
  if (shared_->idle.on) source_->request_background_work(/*soon=*/false);
}

void ContextPool::publish_idle(uint64_t bytes) {
  ledger_->idle_chunks.add(bytes - idle_published_.exchange(bytes));
}

}  // namespace cistern::alloc
