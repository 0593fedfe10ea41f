// SPDX-License-Identifier: Apache-2.0
#include "allocator/idle_work.h"

namespace cistern::alloc {
namespace {

// With a budget nothing goes back before more than the least floor is idle. Whether memory of
// groups is idle is known only by looking.
uint64_t first_bytes_to_release(const IdleRelease& idle, bool budget, bool groups) {
  if (idle.on || idle.defer || (groups && budget)) return 0;
  return budget ? OnDemand::kIdleFloor + 1 : UINT64_MAX;
}

}  // namespace

void IdleWork::init(ContextMemory* memory, WaitingMemory* waiting) {
  memory_ = memory;
  waiting_ = waiting;
  const bool budget = !memory->shared->idle.no_budget &&
                      memory->strategy.visit([](const auto& s) { return s.kHasIdleBudget; });
  from_bytes_ = first_bytes_to_release(memory->shared->idle, budget, memory->groups.on());
  defers_ = memory->shared->idle.defer;
  deferred_.store(false, std::memory_order_relaxed);
  tended_.store(false, std::memory_order_relaxed);
}

// Whether the background thread looks at what is idle from time to time, if there is anything.
bool IdleWork::tended() {
  if (tended_.load(std::memory_order_relaxed)) return true;
  const bool budget = memory_->over_floor() && memory_->source->can_release_clean();
  if (!budget && !memory_->shared->idle.on) return false;
  tended_.store(true);
  if (memory_->source->request_background_work(/*soon=*/false)) return true;
  tended_.store(false);
  return false;
}

void IdleWork::after_free() {
  const bool is_tended = tended();
  if (defers_) return defer();
  sweep_if_due();
  memory_->release_excess_in_free(is_tended);
}

// The synchronisation makes memory idle without a free.
void IdleWork::after_synchronise() {
  sweep_if_due();
  memory_->release_excess();
  tended();
}

void IdleWork::before_miss() { do_deferred(WorkedBy::call); }

// A free that finds `tended_` false asks for the background thread again.
bool IdleWork::in_background() {
  const IdleRelease& idle = memory_->shared->idle;
  tended_.store(false);
  do_deferred(WorkedBy::background);
  if (idle.on) {
    sweep(WorkedBy::background);
  } else {
    waiting_->ask();
    memory_->refresh(/*spare_too=*/false);
  }
  memory_->release_excess_in_background();
  const Usage now = memory_->usage();
  const bool frozen = memory_->shared->reclaim.frozen();
  const bool waits = now.parked != 0 || (now.waiting != 0 && !frozen);
  // During a capture the source refuses memory that it takes later.
  MemorySource& source = *memory_->source;
  const bool takes = source.refuses_release() || source.can_release_clean();
  const bool excess = memory_->over_floor() && !frozen && takes;
  const bool more_to_come =
      (waits && (idle.on || defers_)) || excess || (idle.on && some_may_age(idle.now()));
  if (more_to_come) tended_.store(true);
  return more_to_come;
}

// The first deferred free asks for the background thread soon; without one, the work is done now.
void IdleWork::defer() {
  const bool first = !deferred_.exchange(true);
  if (memory_->source->request_background_work(/*soon=*/first)) return;
  do_deferred(WorkedBy::call);
  sweep_if_due();
  memory_->release_excess_in_free(/*tended=*/false);
}

void IdleWork::do_deferred(WorkedBy worked_by) {
  if (!deferred_.exchange(false)) return;
  memory_->refresh(/*spare_too=*/false);
  memory_->ledger->deferred_done[static_cast<int>(worked_by)].add();
}

// If all idle chunks were idle for the whole delay, and each is larger than may go, there is
// nothing to do before that changes.
bool IdleWork::some_may_age(Tick now) const {
  const IdleRelease& idle = memory_->shared->idle;
  const uint64_t all = memory_->ledger->idle_chunks.get();
  const bool unchanged = age(now, changed_.load(std::memory_order_relaxed)) > idle.due;
  return all > idle.keep && !(unchanged && stays_.load(std::memory_order_relaxed) == all);
}

void IdleWork::sweep_if_due() {
  const IdleRelease& idle = memory_->shared->idle;
  if (idle.on && swept_.load(std::memory_order_relaxed) != idle.now()) sweep(WorkedBy::call);
}

// One thread at a time; the others have nothing to wait for.
void IdleWork::sweep(WorkedBy worked_by) {
  if (sweeping_.exchange(true, std::memory_order_acquire)) return;
  const Tick now = memory_->shared->idle.now();
  memory_->groups.end_idle();
  waiting_->ask();
  memory_->refresh(/*spare_too=*/true);
  release_aged(now, worked_by);
  swept_.store(now, std::memory_order_relaxed);
  sweeping_.store(false, std::memory_order_release);
}

// One chunk at a time, the oldest first, so each can serve a request until its turn comes. A chunk
// that is larger than may go stays, and a younger one goes.
void IdleWork::release_aged(Tick now, WorkedBy worked_by) {
  const Shared& shared = *memory_->shared;
  while (true) {
    const IdleChunks idle = memory_->see_idle(now);
    publish_idle(idle.bytes, now);
    const uint64_t all = memory_->ledger->idle_chunks.get(), keep = shared.idle.keep;
    const bool too_much = idle.bytes != 0 && all > keep;
    if (!too_much || idle.oldest < shared.idle.due || memory_->source->refuses_release()) return;
    if (shared.threads_counting.load() != 0) return;  // there is another sweep
    Went went = release_one_aged(now, idle.oldest, all - keep, worked_by);
    if (went == Went::too_much)
      went = release_one_aged(now, shared.idle.due, all - keep, worked_by);
    stays_.store(went == Went::too_much ? all : 0, std::memory_order_relaxed);
    if (went != Went::yes) return;
  }
}

IdleWork::Went IdleWork::release_one_aged(Tick now, uint32_t least, uint64_t most,
                                          WorkedBy worked_by) {
  ChunkSupply& supply = memory_->supply;
  Expandable* units = memory_->strategy.units();
  const bool may_go_in_units = units != nullptr && most >= units->unit_bytes();
  if (units != nullptr) {
    if (const uint64_t bytes = units->release_aged_units(now, least); bytes != 0) {
      note_aged(bytes, worked_by);
      return Went::yes;
    }
  }
  ChunkList chunk;
  const ChunkSupply::Moving moving(supply);
  memory_->collect_aged(now, least, most, &chunk);
  if (chunk.empty()) return may_go_in_units ? Went::not_now : Went::too_much;
  const uint64_t bytes = chunk.first()->size();
  if (!memory_->release_idle(&chunk)) return Went::not_now;
  note_aged(bytes, worked_by);
  return Went::yes;
}

void IdleWork::note_aged(uint64_t bytes, WorkedBy worked_by) {
  memory_->ledger->aged[static_cast<int>(worked_by)].add();
  memory_->ledger->aged_bytes[static_cast<int>(worked_by)].add(bytes);
}

void IdleWork::publish_idle(uint64_t bytes, Tick now) {
  const uint64_t before = idle_published_.exchange(bytes);
  if (bytes != before) changed_.store(now, std::memory_order_relaxed);
  memory_->ledger->idle_chunks.add(bytes - before);
}

}  // namespace cistern::alloc
