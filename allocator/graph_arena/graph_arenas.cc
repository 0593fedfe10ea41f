// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_arena/graph_arenas.h"

#include <bit>
#include <utility>

namespace cistern::alloc {
namespace {

constexpr uint32_t bit(unsigned pool) { return uint32_t{1} << pool; }

template <typename Visitor>
void for_each_bit(uint32_t bits, Visitor visit) {
  for (; bits != 0; bits &= bits - 1) visit(static_cast<unsigned>(std::countr_zero(bits)));
}

}  // namespace

void GraphArenas::init(SharedChunks* shared, OnDemand* rest, ChunkPools* members,
                       ChunkSupply* supply, MemorySource* source, const DeviceParts& device,
                       const ChunkSizes& sizes) {
  GroupedOnDemand::init(rest, members);
  shared_ = shared;
  supply_ = supply;
  init_runs(source, supply->index, device.ledger, sizes);
  forget_all();
}

// Call it when its pools are forgotten too.
void GraphArenas::forget_all() {
  LockGuard guard(mutex_);
  forget_runs();
  used_ = bit(ChunkPools::kBesideOnDemand);
  left_.store(0);
  refolds_.store(0);
  ledger_->arena_bytes.sub(published_.exchange(0));
}

// --- arenas ---

void GraphArenas::enter_arena(Running* running, AtBegin* begin) {
  if (running->pool == 0) running->pool = static_cast<uint8_t>(new_pool());
  if (running->pool == 0) return;
  const unsigned before = running->pool;
  BlockPool* pool = members_->pool_at(before);
  refolds_.fetch_and(~bit(before));
  if (pool == nullptr || !running->graph->known()) return;
  pool->refresh(shared_->reclaim);
  const bool one = pool->chunks() == 1 && pool->chunk_bytes() >= running->most_needed;
  if (one || pool->chunks() == 0) return;
  // It goes back only as a whole: otherwise each run that begins with work in flight would have to
  // take a part of it anew.
  if (pool->live() == 0) {
    refolds_.fetch_or(bit(before));
    const bool over = gathers() && pool->all_freed_is_over(shared_->reclaim);
    if (over || pool->idle_chunk_bytes() == pool->chunk_bytes()) begin->gives_back = before;
    return;
  }
  constexpr uint64_t kLittle = uint64_t{64} << 20;
  const uint64_t reusable = reusable_bytes(*pool);
  uint64_t spare = reusable - std::min(reusable, pool->idle_chunk_bytes());
  for_each_bit(left_.load(),
               [&](unsigned left) { spare += reusable_bytes(*members_->pool_at(left)); });
  const unsigned next = spare <= std::max(kLittle, running->most_needed) ? new_pool() : 0;
  if (next == 0) return;
  left_.fetch_or(bit(before));
  running->pool = static_cast<uint8_t>(next);
  ledger_->arenas_left.add();
  begin->gives_back = before;
}

// A pool without a chunk; 0 if there is none.
unsigned GraphArenas::new_pool() {
  for_each_bit(left_.load(), [&](unsigned left) {
    if (members_->pool_at(left)->chunks() != 0) return;
    left_.fetch_and(~bit(left));
    used_ &= ~bit(left);
  });
  const auto pool = static_cast<unsigned>(std::countr_one(used_));
  if (pool >= kMostArenas) return 0;
  used_ |= bit(pool);
  return pool;
}

// --- memory ---

bool GraphArenas::take_left(Request& request) {
  bool taken = false;
  for_each_bit(left_.load(std::memory_order_relaxed), [&](unsigned left) {
    const BlockPool* pool = members_->pool_at(left);
    if (taken || reusable_bytes(*pool) < request.bytes) return;
    ArenaPart part{.pool = static_cast<uint8_t>(left)};
    ArenaPart* const own = std::exchange(request.arena, &part);
    taken = members_->take_clean(request);
    request.arena = own;
  });
  return taken;
}

// With gathered fills, waiting memory may be reusable: whether it is becomes known only when a
// request needs it.
uint64_t GraphArenas::reusable_bytes(const BlockPool& pool) const {
  return pool.clean_bytes() + (gathers() ? pool.waiting_bytes() : 0);
}

// With gathered fills, an arena that is to go back is idle only once it is filled.
void GraphArenas::refresh_chunks() {
  GroupedOnDemand::refresh_chunks();
  if (!gathers() || source_->refuses_release()) return;
  for_each_bit(left_.load(std::memory_order_relaxed) | refolds_.load(std::memory_order_relaxed),
               [this](unsigned pool) { members_->fill_freed_of(pool); });
}

// With `step`, takes a chunk of any size.
int GraphArenas::grow(Request& request, Step* step) {
  const ArenaPart& part = *request.arena;
  const auto chunks = [&] {
    const BlockPool* pool = members_->pool_at(part.pool);
    return pool == nullptr ? 0 : pool->chunks();
  };
  const uint64_t before = chunks();
  const int code = step == nullptr ? members_->take_fresh(request)
                                   : members_->take_fresh_of_any_size(request, step);
  if (code != kSuccess || chunks() == before) return code;
  const bool at_its_size = before == 0 && part.first_chunk != 0 &&
                           members_->pool_at(part.pool)->chunk_bytes() >= part.first_chunk;
  (at_its_size ? ledger_->arenas_taken : ledger_->arena_increments).add();
  if (before == 0) refolds_.fetch_and(~bit(part.pool));  // it is one chunk again
  publish();
  request.arena->grew = !at_its_size;
  return code;
}

void GraphArenas::give_back(unsigned pool) {
  if (!source_->can_release_clean()) return;  // collect_excess() does it when no work goes on
  {
    const ChunkSupply::Moving moving(*supply_);
    ChunkList chunks;
    members_->collect_clean_of(pool, &chunks);
    supply_->release_clean(&chunks);
  }
  publish();
}

// The pools, as bits, whose idle chunks are to go: arenas that were left, and empty arenas that
// will be taken anew.
uint32_t GraphArenas::to_give_back() const {
  uint32_t bits = 0;
  for_each_bit(left_.load(std::memory_order_relaxed) | refolds_.load(std::memory_order_relaxed),
               [&](unsigned n) {
                 const BlockPool* pool = members_->pool_at(n);
                 const bool refolds = (refolds_.load(std::memory_order_relaxed) & bit(n)) != 0;
                 if (refolds && pool->idle_chunk_bytes() != pool->chunk_bytes()) return;
                 if (pool->idle_chunk_bytes() != 0) bits |= bit(n);
               });
  return bits;
}

void GraphArenas::collect_excess(ChunkList* out, uint64_t coming) {
  for_each_bit(to_give_back(), [&](unsigned pool) {
    if (out->empty()) members_->collect_one_idle(pool, out);
  });
  if (out->empty()) GroupedOnDemand::collect_excess(out, coming);
  if (out->empty()) publish();
}

// If several threads change something and then publish, the last one sees all changes.
void GraphArenas::publish() {
  LockGuard guard(mutex_);
  uint64_t bytes = 0;
  for_each_running([&](const Running& each) {
    const BlockPool* pool = each.pool == 0 ? nullptr : members_->pool_at(each.pool);
    bytes += pool == nullptr ? 0 : pool->chunk_bytes();
  });
  ledger_->arena_bytes.add(bytes - published_.exchange(bytes));
  ledger_->arena_peak.raise_to(ledger_->arena_bytes.get());
}

}  // namespace cistern::alloc
