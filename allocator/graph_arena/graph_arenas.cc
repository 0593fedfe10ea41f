// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_arena/graph_arenas.h"

#include <bit>
#include <cstring>
#include <utility>

#include "allocator/base/os.h"

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
  source_ = source;
  ledger_ = device.ledger;
  sizes_ = sizes;
  forget_all();
}

// Its pools are forgotten, too.
void GraphArenas::forget_all() {
  LockGuard guard(mutex_);
  if (tables_ != nullptr) os::unmap(tables_, sizeof *tables_);
  tables_ = nullptr;
  used_ = bit(kGroups);
  left_.store(0);
  refolds_.store(0);
  known_ = 0;
  ledger_->arena_bytes.sub(published_.exchange(0));
}

// --- runs ---

ArenaPart GraphArenas::place(uint64_t bytes, GraphRun graph) {
  AtBegin begin{};
  ArenaPart part;
  {
    LockGuard guard(mutex_);
    Running* mine = running(graph, &begin);
    if (mine == nullptr) return part;
    const KnownGraph::Key key = mine->graph->next(bytes, mine->counts);
    if (!mine->graph->outlives(key)) {
      part = {mine->pool, std::max(sizes_.first, mine->most_needed), sizes_.later, mine->requests};
      if (mine->requests < kMostNoted) mine->noted[mine->requests++] = {0, key};
    }
  }
  if (begin.overlaps) source_->graphs_overlap();
  if (begin.gives_back != 0) give_back(begin.gives_back);
  return part;
}

void GraphArenas::note_taken(const Request& request, GraphRun graph) {
  const ArenaPart& part = *request.arena;
  if (part.pool == 0) return;
  LockGuard guard(mutex_);
  Running* mine = by_pool(part.pool, graph.run);
  if (mine == nullptr) return;  // its graph has ended meanwhile
  if (part.noted < kMostNoted) mine->noted[part.noted].address = request.address;
  if (const BlockPool* pool = members_->pool_at(part.pool)) {
    mine->peak = std::max(mine->peak, in_use(*pool));
  }
}

// What the program holds of a pool, as the pool rounds it.
uint64_t GraphArenas::in_use(const BlockPool& pool) {
  const uint64_t others = pool.clean_bytes() + pool.waiting_bytes() + pool.parked_bytes() +
                          pool.garbage_bytes() + pool.quarantined_bytes();
  const uint64_t all = pool.chunk_bytes();
  return all > others ? all - others : 0;
}

GraphArenas::Running* GraphArenas::by_pool(unsigned pool, uint32_t run) {
  if (tables_ == nullptr) return nullptr;
  for (Running& each : tables_->running) {
    if (each.run == run && each.pool == pool) return &each;
  }
  return nullptr;
}

// The run's place, where it begins now if it has none; nullptr where there is none.
GraphArenas::Running* GraphArenas::running(GraphRun graph, AtBegin* begin) {
  if (tables_ == nullptr) {
    tables_ = static_cast<Tables*>(os::map(sizeof(Tables), 4096));
    if (tables_ == nullptr) return nullptr;
  }
  for (Running& each : tables_->running) {
    if (each.run == graph.run) return &each;
  }
  if (!source_->graph_is_open(graph.run)) return nullptr;  // it ended while the request came here
  Running* place = free_place();
  if (place == nullptr) return nullptr;
  if (place->run != 0) end(*place);
  if (place->pool == 0) place->pool = static_cast<uint8_t>(new_pool());
  if (place->pool == 0) return nullptr;
  if (place != tables_->running) {
    ledger_->graphs_apart.add();
    begin->overlaps = true;
  }
  place->run = graph.run;
  place->graph = graph_of(graph.name);
  place->peak = 0;
  place->requests = 0;
  std::memset(&place->counts, 0, sizeof place->counts);
  begin->gives_back = reshape(*place);
  const BlockPool* pool = members_->pool_at(place->pool);
  place->live_before = pool == nullptr ? 0 : pool->live();
  place->grew = false;
  return place;
}

// The first whose run has ended.
GraphArenas::Running* GraphArenas::free_place() {
  for (Running& each : tables_->running) {
    if (each.run == 0 || !source_->graph_is_open(each.run)) return &each;
  }
  return nullptr;
}

KnownGraph* GraphArenas::graph_of(uint32_t name) {
  for (unsigned i = 0; i < known_; ++i) {
    if (tables_->graphs[i].name() == name) return &tables_->graphs[i];
  }
  if (known_ == kMostNames) return &tables_->graphs[kMostNames - 1];
  KnownGraph* graph = &tables_->graphs[known_++];
  graph->begin(name);
  ledger_->graphs.raise_to(known_);
  return graph;
}

// What its run has shown. A graph that was known and still grew the arena may have met free memory
// in pieces, or not clean yet: it needs what the arena has by now.
void GraphArenas::end(Running& running) {
  BlockPool* pool = members_->pool_at(running.pool);
  if (pool == nullptr) return;
  const uint64_t live = pool->live();
  if (live > running.live_before) look_for_survivors(running, *pool);
  uint64_t need = running.peak - std::min(running.peak, in_use(*pool));
  if (running.grew && live == 0) need = std::max(need, pool->chunk_bytes());
  running.graph->note_run(need);
  uint64_t sum = 0;
  for (unsigned i = 0; i < known_; ++i) sum += tables_->graphs[i].need();
  ledger_->graph_bytes.raise_to(sum);
}

// Of requests that got the same address the last one is live.
void GraphArenas::look_for_survivors(Running& running, const BlockPool& pool) {
  std::memset(tables_->seen, 0, sizeof tables_->seen);
  for (uint32_t i = running.requests; i-- > 0;) {
    const Noted& noted = running.noted[i];
    if (noted.address == 0 || seen_before(noted.address)) continue;
    const Chunk* chunk = supply_->index->find(noted.address);
    uint64_t start, bytes;
    const bool here =
        chunk != nullptr && chunk->is() == Role::split && members_->pool_of(chunk) == &pool;
    if (here && members_->find(chunk, noted.address, &start, &bytes) && start == noted.address) {
      running.graph->note_outlives(noted.key);
    }
  }
}

bool GraphArenas::seen_before(uint64_t address) {
  uint64_t slot = (address >> 9) * 0x9e3779b97f4a7c15u >> 40;
  for (; tables_->seen[slot % kSeen] != 0; ++slot) {
    if (tables_->seen[slot % kSeen] == address) return true;
  }
  tables_->seen[slot % kSeen] = address;
  return false;
}

// The pool that is to give back its clean chunks, or 0.
unsigned GraphArenas::reshape(Running& running) {
  BlockPool* pool = members_->pool_at(running.pool);
  running.most_needed = std::max(running.most_needed, round_up(running.graph->need(), kDriverPage));
  refolds_.fetch_and(~bit(running.pool));
  if (pool == nullptr || !running.graph->known()) return 0;
  pool->refresh(shared_->reclaim);
  const unsigned before = running.pool;
  const bool one = pool->chunks() == 1 && pool->chunk_bytes() >= running.most_needed;
  if (one || pool->chunks() == 0) return 0;
  // In part it would only have to be taken anew, by each run that begins under work in flight.
  if (pool->live() == 0) {
    refolds_.fetch_or(bit(before));
    return pool->idle_chunk_bytes() == pool->chunk_bytes() ? before : 0;
  }
  constexpr uint64_t kLittle = uint64_t{64} << 20;
  uint64_t spare = pool->clean_bytes() - std::min(pool->clean_bytes(), pool->idle_chunk_bytes());
  for_each_bit(left_.load(),
               [&](unsigned left) { spare += members_->pool_at(left)->clean_bytes(); });
  const unsigned next = spare <= std::max(kLittle, running.most_needed) ? new_pool() : 0;
  if (next == 0) return 0;
  left_.fetch_or(bit(before));
  running.pool = static_cast<uint8_t>(next);
  ledger_->arenas_left.add();
  return before;
}

// A pool without a chunk; 0: there is none.
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
    if (taken || pool->clean_bytes() < request.bytes) return;
    ArenaPart part{.pool = static_cast<uint8_t>(left)};
    ArenaPart* const own = std::exchange(request.arena, &part);
    taken = members_->take_clean(request);
    request.arena = own;
  });
  return taken;
}

// With `step`: of any size.
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
  publish();
  if (!at_its_size) note_grown(part.pool);
  return code;
}

// What an unknown graph takes says nothing of how much it will need in one piece.
void GraphArenas::note_grown(unsigned pool) {
  LockGuard guard(mutex_);
  if (tables_ == nullptr) return;
  for (Running& each : tables_->running) {
    if (each.run != 0 && each.pool == pool) each.grew = each.graph->known();
  }
}

void GraphArenas::give_back(unsigned pool) {
  if (!source_->can_release_clean()) return;  // when no work goes on: collect_excess()
  {
    const ChunkSupply::Moving moving(*supply_);
    ChunkList chunks;
    members_->collect_clean_of(pool, &chunks);
    supply_->release_clean(&chunks);
  }
  publish();
}

// Pools that have idle chunks which are to go: of arenas that were left, and of empty ones that are
// to be taken anew.
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

void GraphArenas::collect_excess(ChunkList* out) {
  for_each_bit(to_give_back(), [&](unsigned pool) {
    if (out->empty()) members_->collect_one_idle(pool, out);
  });
  if (out->empty()) GroupedOnDemand::collect_excess(out);
  if (out->empty()) publish();
}

void GraphArenas::publish() {
  uint64_t bytes = 0;
  {
    LockGuard guard(mutex_);
    for (const Running* each = tables_ == nullptr ? nullptr : tables_->running;
         each != nullptr && each != std::end(tables_->running); ++each) {
      const BlockPool* pool = each->pool == 0 ? nullptr : members_->pool_at(each->pool);
      bytes += pool == nullptr ? 0 : pool->chunk_bytes();
    }
  }
  ledger_->arena_bytes.add(bytes - published_.exchange(bytes));
  ledger_->arena_peak.raise_to(ledger_->arena_bytes.get());
}

}  // namespace cistern::alloc
