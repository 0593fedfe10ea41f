// SPDX-License-Identifier: Apache-2.0
#include "allocator/context_memory.h"

#include <algorithm>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"

namespace cistern::alloc {

void ContextMemory::init(Shared* shared_state, MemorySource* memory_source,
                         const DeviceParts& device, uint32_t number, const ChunkSizes& sizes,
                         const GroupRules& rules) {
  shared = shared_state;
  source = memory_source;
  ledger = device.ledger;
  garbage = device.garbage;
  owner = number;
  party = device.party(number);
  releasing_.store(false, std::memory_order_relaxed);
  stuck_at_.store(~Ticket{0}, std::memory_order_relaxed);
  proof_ = kNoProof;
  looks_ = proven_ = kNotSeen;
  if (device.shared_party < 0) shared->reclaim.graphs().parked(party).init(ledger);
  supply.init(shared, source, device, owner);
  GroupRules groups_here = rules;
  ChunkSizes sizes_here = sizes;
  if (source->units() == nullptr) sizes_here.kind = without_units(sizes.kind);
  if (sizes.kind == StrategyKind::none) groups_here.on = false;  // every request is the driver's
  strategy.init(shared, &supply, source, device, owner, sizes_here, groups_here.on);
  plan.init(shared, &supply, device, owner, sizes);
  groups.init(groups_here, &strategy.chunk_pools(), shared, ledger);
}

// --- a request ---

int ContextMemory::take_fresh(Request& request) {
  if (!request.pooled) [[unlikely]]
    return supply.obtain_direct(request);
  return strategy.visit([&](auto& s) { return s.take_fresh(request); });
}

bool ContextMemory::take_from_anywhere(Request& request, Step* step) {
  return strategy.visit([&](auto& s) { return s.take_from_anywhere(request, step); }) ||
         plan.pools().take_from_anywhere(request, step);
}

void ContextMemory::count_whole(uint64_t bytes) {
  ledger->live.add(bytes);
  // Only near the peak it matters what the pools have not published yet.
  const uint64_t most = strategy.visit([](const auto& s) { return s.kMostUnpublished; });
  if (ledger->live.get() + most >= ledger->live_peak.get()) ledger->note_live(unpublished_live());
}

void ContextMemory::refresh(bool spare_too) {
  const bool fills = supply.filler.gathers() && !source->refuses_release();
  const ChunkSupply::Moving moving(supply);
  supply.cache.refresh(shared->reclaim);
  strategy.visit([=](auto& s) {
    if (fills) s.fill_freed();
    s.refresh(spare_too);
  });
  plan.pools().refresh(spare_too);
}

// --- to the source ---

// Advances the recent peak by the clock.
void ContextMemory::note_time() {
  supply.cache.recently_used.advance(shared->idle.clock(), supply.cache.in_use());
}

bool ContextMemory::over_budget(uint64_t coming) const {
  return plan.over_budget() || strategy.visit([=](const auto& s) { return s.over_budget(coming); });
}

// One chunk at a time, so each can serve a request until its turn comes. A thread that counts the
// free memory waits until no chunk is on its way.
template <typename Release>
void ContextMemory::release_excess_by(uint64_t coming, Release release) {
  for (bool gone = true; gone && !held_up_by_questions(coming);) {
    ChunkList chunk;
    const ChunkSupply::Moving moving(supply);
    plan.collect_excess(&chunk);
    if (chunk.empty()) strategy.visit([&](auto& s) { s.collect_excess(&chunk, coming); });
    gone = !chunk.empty() && release(&chunk);
  }
}

bool ContextMemory::held_up_by_questions(uint64_t coming) const {
  return coming == 0 && shared->threads_counting.load() != 0;
}

// One thread at a time; the others need not wait for it. If the source cannot release without a
// wait, it waits only if `may_wait`, as the program's own free would have, and only once twice the
// budget is idle.
void ContextMemory::release_what_is_over(bool may_wait) {
  if (releasing_.exchange(true, std::memory_order_acquire)) return;
  const auto far_over = [this] {
    return strategy.visit([](const auto& s) { return s.far_over_budget(); });
  };
  if (source->can_release_clean()) {
    source->pays_what_it_owes(/*waits=*/true);  // before anything is out of the pools
    release_excess_by(0, [this](ChunkList* chunk) { return supply.release_clean(chunk); });
  } else if (await_work(/*patience_ns=*/0) != Work::goes_on || (may_wait && far_over())) {
    release_excess_by(0, [this](ChunkList* chunk) { return supply.release(chunk); });
  }
  releasing_.store(false, std::memory_order_release);
}

// An exported chunk that the source refused in the program's free goes as soon as the source takes
// it.
void ContextMemory::release_refused() {
  if (!supply.cache.any_refused()) return;
  ChunkList exported;
  const ChunkSupply::Moving moving(supply);
  supply.cache.collect_refused(&exported);
  supply.release(&exported);
}

void ContextMemory::release_excess() {
  strategy.visit([](auto& s) { s.refresh_chunks(); });
  plan.pools().refresh(/*spare_too=*/false);
  if (over_floor()) note_time();
  if (over_budget()) release_what_is_over(/*may_wait=*/false);
  release_refused();
}

void ContextMemory::release_excess_in_free(bool tended) {
  const bool at_once = strategy.visit([tended](const auto& s) {
    return s.must_give_back() || (tended ? s.far_over_budget() : s.over_floor());
  });
  if (at_once) [[unlikely]] {
    strategy.visit([](auto& s) { s.refresh_chunks(); });
    note_time();
    if (over_budget()) release_what_is_over(/*may_wait=*/true);
  }
  release_refused();
}

void ContextMemory::release_excess_before(uint64_t coming) {
  if (!over_floor() || !source->can_release_clean()) return;
  note_time();
  if (!over_budget(coming) || releasing_.exchange(true, std::memory_order_acquire)) return;
  const bool owed = !source->pays_what_it_owes(/*waits=*/false);
  owed ? release_proven(coming) : release_unowed(coming);
  releasing_.store(false, std::memory_order_release);
}

void ContextMemory::release_excess_in_background() {
  if (!over_floor() || !source->can_release_clean()) return;
  note_time();
  if (releasing_.exchange(true, std::memory_order_acquire)) return;
  if (source->pays_what_it_owes(/*waits=*/false)) release_unowed(/*coming=*/0);
  release_proven(/*coming=*/0);
  releasing_.store(false, std::memory_order_release);
}

// Another thread may free meanwhile, and so owe an order again.
void ContextMemory::release_unowed(uint64_t coming) {
  release_excess_by(coming, [this](ChunkList* chunk) {
    return supply.release_clean(chunk, ChunkSupply::Order::waits_not);
  });
}

// Idle memory may have been freed under an order that is still owed. So a look gives its number to
// idle chunks that have none, and marks all work. Once the mark has passed, chunks with that number
// or an older one are proven to be clean. If the mark cannot be made, the look is repeated.
void ContextMemory::release_proven(uint64_t coming) {
  Reclaim& reclaim = shared->reclaim;
  if (proof_ != kNoProof) {
    reclaim.poll(party);
    if (reclaim.clean(party) >= proof_) {
      proof_ = kNoProof;
      proven_ = looks_;
    }
  }
  for (bool gone = proven_ != kNotSeen; gone && !held_up_by_questions(coming);) {
    ChunkList chunk;
    const ChunkSupply::Moving moving(supply);
    const uint32_t least = age(looks_, proven_);
    if (plan.over_budget()) plan.pools().collect_aged_here(looks_, least, &chunk);
    if (chunk.empty()) {
      strategy.visit([&](auto& s) { s.collect_aged_excess(looks_, least, coming, &chunk); });
    }
    gone = !chunk.empty() && supply.release_clean(&chunk, ChunkSupply::Order::none_owed);
  }
  if (proof_ != kNoProof) return;
  if (looks_ == proven_) looks_ = next_tick(looks_);
  see_idle(looks_);
  const Ticket everything = reclaim.close();
  if (reclaim.mark(party, everything, /*at_once=*/true)) proof_ = everything;
}

bool ContextMemory::release_idle(ChunkList* chunks) {
  if (chunks->empty()) return false;
  if (source->can_release_clean()) return supply.release_clean(chunks);
  if (await_work(/*patience_ns=*/0) != Work::goes_on) return supply.release(chunks);
  supply.cache.add_idle(chunks);
  return false;
}

// As long as no work has ended, earlier waits in vain count as part of this one. But at least a
// moment is left, because even an idle device takes a little to answer. If an older mark has not
// passed yet, a newer one has not either, and no wait is left.
uint64_t ContextMemory::patience(uint64_t wanted_ns) {
  constexpr uint64_t kAnswerNs = 1'000'000;
  Reclaim& reclaim = shared->reclaim;
  const auto stuck = [&] { return reclaim.clean(party) == stuck_at_.load(); };
  if (wanted_ns == 0) return 0;
  if (stuck() && reclaim.any_outstanding(party)) {
    reclaim.wait(party, reclaim.clean(party) + 1, kAnswerNs);
  }
  if (!stuck()) return wanted_ns;
  const uint64_t left = wanted_ns - std::min(wanted_ns, waited_in_vain_ns_.get());
  if (left != 0 || reclaim.any_outstanding(party)) return left;
  return std::min(wanted_ns, Deadlines::kMoment);
}

void ContextMemory::note_stuck(uint64_t waited_ns) {
  constexpr uint64_t kShortNs = 50'000'000;  // the answer may just have been late
  if (waited_ns < kShortNs) return;
  const Ticket clean = shared->reclaim.clean(party);
  if (stuck_at_.exchange(clean) != clean) {
    waited_in_vain_ns_.set(0);
    counted_until_ns_.store(0);
  }
  const uint64_t now = os::now_ns();
  const uint64_t since = std::max(now - waited_ns, counted_until_ns_.exchange(now));
  if (since < now) waited_in_vain_ns_.add(now - since);
}

// mark() also fails while another thread is about to make one.
ContextMemory::Work ContextMemory::await_work(uint64_t patience_ns) {
  constexpr int kAttempts = 10;
  constexpr uint64_t kPauseNs = 20'000;
  Reclaim& reclaim = shared->reclaim;
  const Ticket now = reclaim.close();
  for (int i = 0; i < kAttempts; ++i) {
    if (reclaim.frozen() || source->refuses_release()) break;
    const uint64_t left = patience(patience_ns);
    if (left == 0 && patience_ns != 0) return Work::goes_on;
    if (!reclaim.mark(party, now)) {
      os::sleep_ns(kPauseNs);
      continue;
    }
    const uint64_t start = os::now_ns();
    if (reclaim.wait(party, now, left)) return Work::done;
    note_stuck(os::now_ns() - start);
    return Work::goes_on;
  }
  return Work::unknown;
}

// The source's own free would also have waited for this work, and longer. Not if some frees are
// late or the context is tied: that wait could include other work.
bool ContextMemory::await_work_before_frees(uint64_t patience_ns) {
  Reclaim& reclaim = shared->reclaim;
  Ticket newest;
  if (!newest_waiting(&newest) || newest <= reclaim.clean(party)) return false;
  if (reclaim.any_late(party) || reclaim.tied(party) || source->refuses_release()) return false;
  const uint64_t left = patience(std::min(patience_ns, source->patience_ns()));
  if (!reclaim.mark(party, newest)) return false;
  const uint64_t start = os::now_ns();
  if (!reclaim.wait(party, newest, left)) note_stuck(os::now_ns() - start);
  return true;
}

bool ContextMemory::release_units(Units units) {
  Expandable* memory = strategy.units();
  return memory != nullptr && units == Units::go && memory->release_units();
}

bool ContextMemory::release_clean(Units units, ChunkSupply::Order order) {
  source->pays_what_it_owes(/*waits=*/false);  // what an order that is paid covers is clean
  const bool any = release_units(units);
  // Otherwise chunks that are taken out and put back would be missing meanwhile to other threads
  // that are short of memory.
  if (!source->can_release_clean()) return any;
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply);
  strategy.visit([&](auto& s) { s.collect_clean(&chunks); });
  plan.collect_clean(&chunks);
  supply.cache.collect_clean(shared->reclaim, &chunks);
  return supply.release_clean(&chunks, order) || any;
}

bool ContextMemory::release_returnable(uint64_t patience_ns, Units units, uint64_t freed_ns) {
  groups.end_all();
  flush_garbage();
  unpark_everything();
  bool clean = release_clean(units);
  if (strategy.units() != nullptr && units == Units::stay) return clean;  // the source gets nothing
  const Usage left = usage();
  const bool rest =
      left.waiting + left.parked + left.quarantined != 0 || supply.cache.any_refused();
  // All clean units have gone by now.
  if (strategy.units() != nullptr && !rest && supply.cache.idle_bytes() == 0) return clean;
  const bool clean_alone = source->can_release_clean() && !source->release_clean_untried();
  if (clean_alone && !rest) return clean || (freed_ns != 0 && settle());
  Work work = await_work(patience_ns);
  if (work == Work::goes_on) {
    const bool waited = freed_ns != 0 && await_work_before_frees(freed_ns);
    if (!waited && patience_ns == 0) return release_clean(units) || clean;  // just asked
    clean |= release_clean(units);
    if (source->can_release_clean()) return clean;
    work = await_work(patience_ns);
    if (work == Work::goes_on) return clean;
  }
  if (work == Work::done && freed_ns != 0) clean |= source->settle_clean_releases();
  return release_all_freed(units) || clean;
}

// The source may only have seemed to take clean memory at once: another context's release, or
// another thread's free, can look the same.
bool ContextMemory::settle() {
  if (!source->unsettled() || await_work(Deadlines::kMoment) != Work::done) return false;
  return source->settle_clean_releases();
}

bool ContextMemory::release_all_freed(Units units) {
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply);
  strategy.visit([&](auto& s) { s.collect_all(&chunks); });
  plan.collect_all(&chunks);
  supply.cache.collect_all(&chunks);
  const bool any = release_units(units);
  return supply.release(&chunks) || any;
}

IdleChunks ContextMemory::see_idle(Tick now) {
  IdleChunks all = strategy.visit([now](auto& s) { return s.see_idle(now); });
  const IdleChunks planned = plan.pools().see_idle_here(now);
  all.add(planned.bytes, planned.oldest);
  return all;
}

void ContextMemory::collect_aged(Tick now, uint32_t least, uint64_t most, ChunkList* out) {
  strategy.visit([=](auto& s) { s.collect_aged(now, least, out, most); });
  if (out->empty()) plan.pools().collect_aged_here(now, least, out, most);
}

// --- parked, garbage ---

void ContextMemory::unpark_everything() {
  supply.cache.unpark_everything();
  for_each_pool([](auto& pool) { pool.unpark_everything(); });
}

void ContextMemory::flush_garbage() {
  if (garbage != nullptr && garbage->flush_all()) expect_background_work();
}

void ContextMemory::flush_synchronised(Ticket ticket) {
  if (garbage != nullptr && garbage->flush_synchronised(party, ticket)) expect_background_work();
}

// Flushed garbage becomes idle without any free, so the background thread must look.
void ContextMemory::expect_background_work() {
  if (shared->idle.on) source->request_background_work(/*soon=*/false);
}

// --- the end ---

// The program may destroy a context that other threads still use. Memory that they took out before
// the pools were closed must be in its place again before everything is forgotten.
void ContextMemory::forget_all() {
  for_each_pool([](auto& pool) { pool.close(); });
  supply.close();
  os::wait_while([this] { return anything_in_hand(); });
  groups.forget_all();
  for_each_pool([](auto& pool) { pool.forget_all(); });
  strategy.forget_arenas();
  supply.forget_all([this](Chunk* chunk) {
    strategy.visit([chunk](auto& s) { s.forget(chunk); });
    plan.pools().forget(chunk);
  });
  plan.end();
}

bool ContextMemory::anything_in_hand() const {
  bool any = supply.in_hand();
  for_each_pool([&](const auto& pool) { any |= pool.in_hand() != 0; });
  return any;
}

// --- sums ---

bool ContextMemory::waiting_range(Ticket* oldest, Ticket* newest) {
  bool any = supply.cache.waiting_bytes() != 0 && supply.cache.waiting_range(oldest, newest);
  for_each_pool([&](auto& pool) {
    Ticket first, last;
    if (pool.waiting_bytes() == 0 || !pool.waiting_range(&first, &last)) return;
    *oldest = any ? std::min(*oldest, first) : first;
    *newest = any ? std::max(*newest, last) : last;
    any = true;
  });
  return any;
}

bool ContextMemory::newest_waiting(Ticket* newest) const {
  bool any = supply.cache.newest_waiting(newest);
  for_each_pool([&](const auto& pool) {
    Ticket last;
    if (!pool.newest_waiting(&last)) return;
    *newest = any ? std::max(*newest, last) : last;
    any = true;
  });
  return any;
}

uint64_t ContextMemory::waiting_bytes() const {
  uint64_t bytes = supply.cache.waiting_bytes();
  for_each_pool([&](const auto& pool) { bytes += pool.waiting_bytes(); });
  return bytes;
}

uint64_t ContextMemory::queued_bytes() const {
  uint64_t bytes = supply.cache.queued_bytes();
  for_each_pool([&](const auto& pool) { bytes += pool.queued_bytes(); });
  return bytes;
}

int64_t ContextMemory::unpublished_live() const {
  int64_t bytes = 0;
  for_each_pool([&](const auto& pool) { bytes += static_cast<int64_t>(pool.unpublished()); });
  return bytes;
}

Usage ContextMemory::usage() const {
  const ChunkCache& cache = supply.cache;
  Usage usage{cache.live(),         cache.idle_bytes(),    cache.waiting_bytes(),
              cache.parked_bytes(), cache.garbage_bytes(), 0};
  for_each_pool([&](const auto& pool) {
    usage.live += pool.live();
    usage.idle += pool.clean_bytes();
    usage.waiting += pool.waiting_bytes();
    usage.parked += pool.parked_bytes();
    usage.garbage += pool.garbage_bytes();
    usage.quarantined += pool.quarantined_bytes();
  });
  return usage;
}

// Where the source takes clean memory alone, all of it will be returned: what waits for work before
// its free is clean by then. That needs no question to the source. Else all of it will be if no
// work goes on, and otherwise only what is clean, if the source takes that.
uint64_t ContextMemory::returnable_bytes() {
  constexpr uint64_t kMomentNs = 20'000'000;
  Reclaim& reclaim = shared->reclaim;
  const uint64_t all = returnable_bytes(/*idle=*/true);
  const bool sure =
      source->release_clean_trusted() && !reclaim.tied(party) && !reclaim.any_late(party);
  if (sure || returnable_bytes(/*idle=*/false) == all) return all;
  const Work work = await_work(kMomentNs);
  if (work == Work::done && source->settle_clean_releases()) {
    const ChunkSupply::Moving seen(supply);  // what the source has free is another figure now
  }
  // Whether the source does take clean memory alone is known once it was tried.
  if (work == Work::goes_on && source->release_clean_untried()) release_clean();
  return returnable_bytes(work != Work::goes_on);
}

uint64_t ContextMemory::returnable_bytes(bool idle) {
  Reclaim& reclaim = shared->reclaim;
  const bool parts = source->can_release_clean() && !source->release_clean_untried();
  const bool cuts = strategy.visit([](const auto& s) { return s.kCutsIdleChunks; });
  uint64_t bytes = idle ? supply.cache.returnable_bytes() : 0;
  if (!idle && (parts || cuts)) bytes = supply.cache.clean_bytes(reclaim);
  for_each_pool([&](auto& pool) { bytes += pool.available_bytes(reclaim, idle, parts); });
  return bytes;
}

uint64_t ContextMemory::largest_free() {
  uint64_t bytes = supply.cache.largest_idle();
  for_each_pool([&](auto& pool) { bytes = std::max(bytes, pool.largest_clean()); });
  return bytes;
}

uint64_t ContextMemory::allocations() const {
  uint64_t n = supply.cache.allocations.get();
  for_each_pool([&](const auto& pool) { n += pool.allocations.get(); });
  return n;
}

uint64_t ContextMemory::frees() const {
  uint64_t n = supply.cache.frees.get();
  for_each_pool([&](const auto& pool) { n += pool.frees.get(); });
  return n;
}

void ContextMemory::reset_after_fork() {
  supply.cache.reset_after_fork();
  if (groups.on()) groups.reset_after_fork();
  strategy.visit([](auto& s) { s.reset_after_fork(); });
  plan.reset_after_fork();
  for_each_pool([](auto& pool) { pool.reset_after_fork(); });
}

}  // namespace cistern::alloc
