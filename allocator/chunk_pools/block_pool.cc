// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/block_pool.h"

#include <climits>

namespace cistern::alloc {
namespace {

// Frees made clean per allocation: keeps a long queue from stalling one call.
constexpr int kRefreshedPerCall = 32;
constexpr int kProbes = 16;
// After this many frees it is time to ask whether they are clean, however small they were. From
// this size on, asking is cheaper than cutting up a block needlessly.
constexpr uint32_t kCrowd = 256;
constexpr uint32_t kWorthAsking = (64 << 10) / kBlockGranule;

}  // namespace

// Inlined into allocate(), because most requests go no further.
[[gnu::always_inline]] inline uint64_t BlockPool::take(uint32_t granules, uint64_t bytes,
                                                       Epoch born, Search search) {
  if (!records_.reserve(2)) return 0;  // cutting off both ends needs two
  const uint32_t align = granules >= align_ ? align_ : 1;
  ChunkBlock* block = nullptr;
  if (rule_ != ReuseRule::about) [[unlikely]]
    block = find_by_rule(granules, bytes, align);
  if (block == nullptr) block = find_clean(granules, align, search);
  if (block == nullptr) return 0;
  if (block->granules != granules || align != 1)
    return hand_out(block, granules, align, bytes, born);
  remove(block);
  return become_live(block, bytes, born);
}

uint64_t BlockPool::allocate(uint32_t granules, uint64_t bytes, Reclaim& reclaim, Search search,
                             bool* ask_first) {
  LockGuard guard(mutex_);
  if (closed()) [[unlikely]]
    return 0;
  const Epoch born = reclaim.epoch();
  const Ticket clean = unpark_and_see_clean(reclaim);
  if (freed_.has_clean(clean)) {
    ChunkBlock* block = unit_ == 0 ? take_if_alone(granules) : nullptr;
    if (block != nullptr) return become_live(block, bytes, born);
    refresh_locked(clean, kRefreshedPerCall, nullptr);
  }
  if (search == Search::first && worth_asking(granules)) {
    unasked_ = 0;
    *ask_first = true;
    return 0;
  }
  const uint64_t address = take(granules, bytes, born, search);
  if (address != 0) [[likely]]
    return address;
  return take_more(granules, bytes, born, search, clean);
}

// If no clean block is large enough.
uint64_t BlockPool::take_more(uint32_t granules, uint64_t bytes, Epoch born, Search search,
                              Ticket clean) {
  uint64_t address = 0;
  if (freed_.has_clean(clean)) {
    refresh_locked(clean, INT_MAX, nullptr);
    address = take(granules, bytes, born, search);
  }
  if (address == 0 && search == Search::thorough && forget_sizes(nullptr)) {
    address = take(granules, bytes, born, search);
  }
  if (address == 0 && unmerged_) {
    merge_everything();
    address = take(granules, bytes, born, search);
  }
  return address;
}

bool BlockPool::worth_asking(uint32_t granules) const {
  if (unasked_ == 0) return false;
  if (unasked_ >= kCrowd) return true;
  if (granules < kWorthAsking || waiting_bytes() / kBlockGranule < granules) return false;
  const ChunkBlock* block = bins_.find(granules, UINT32_MAX, 1);
  return block != nullptr && block->granules - granules > granules / 8;
}

// A block that the rule prefers to that of find_clean(), or nullptr.
ChunkBlock* BlockPool::find_by_rule(uint32_t granules, uint64_t bytes, uint32_t align) {
  if (keeps_sizes()) return find_kept(granules, bytes);
  ChunkBlock* least = bins_.find_least(granules);
  if (least == nullptr || least->fits(granules, align)) return least;
  return bins_.find_least(uint64_t{granules} + align - 1);
}

// The best fitting block if it holds an aligned block, otherwise one that is large enough for any
// alignment.
ChunkBlock* BlockPool::find_clean(uint32_t granules, uint32_t align, Search search) const {
  const int probes = search == Search::thorough ? INT_MAX : kProbes;
  ChunkBlock* block = bins_.find(granules, UINT32_MAX, probes);
  if (block == nullptr && becomes_ == Clean::in_place && search == Search::thorough) {
    return find_aligned(granules, align);
  }
  if (block == nullptr || align == 1) return block;
  if (block->fits(granules, align)) return block;
  block = bins_.find(uint64_t{granules} + align - 1, UINT32_MAX, probes);
  return block != nullptr || search != Search::thorough ? block : find_aligned(granules, align);
}

// Looks at the blocks one by one, because a block's size says nothing about its alignment.
ChunkBlock* BlockPool::find_aligned(uint32_t granules, uint32_t align) const {
  for (const ChunkMap* map = maps_; map != nullptr; map = map->next) {
    for (ChunkBlock* block = map->first_block(); block != nullptr; block = block->after) {
      if (block->is() == BlockState::clean && block->fits(granules, align)) return block;
    }
  }
  return nullptr;
}

uint64_t BlockPool::hand_out(ChunkBlock* block, uint32_t granules, uint32_t align, uint64_t bytes,
                             Epoch born) {
  remove(block);
  if (const uint32_t unaligned = block->to_aligned(align); unaligned != 0) {
    ChunkBlock* aligned = split(block, unaligned);
    insert(block);
    block = aligned;
  }
  if (block->granules != granules) insert(split(block, granules));
  return become_live(block, bytes, born);
}

// Cuts the block after `granules` and returns the part behind.
ChunkBlock* BlockPool::split(ChunkBlock* block, uint32_t granules) {
  ChunkBlock* rest = records_.take();
  block->map()->split(block, granules, rest);
  table_.insert(rest);
  return rest;
}

// The block is neither merged with its neighbours nor kept for its size.
[[gnu::always_inline]] inline void BlockPool::become_clean(ChunkBlock* block, ChunkMap* map) {
  unmerged_ = true;
  insert(block);
  if (counts_idle() && map->live == 0) count_if_idle(map);
}

uint64_t BlockPool::free(const Chunk* chunk, uint64_t address, Reclaim& reclaim, ChunkList* ended,
                         Ticket latest) {
  LockGuard guard(mutex_);
  ChunkBlock* block = live_at(chunk, address);
  if (block == nullptr) return 0;
  ChunkMap* map = chunk->map();
  if (--map->live == map->rooms && counts_idle()) idle_rounding_.own_add(map->rounding);
  if (keeps_sizes()) [[unlikely]]
    block->keep_asked();
  const uint64_t bytes = note_freed(block);
  if (block->exported != 0 && unit_ == 0) [[unlikely]] {
    ++map->quarantined;
    quarantine(block->bytes());
  } else if (cleans_in_free_ && freed_.clean_when_freed(block->born, reclaim, latest)) {
    become_clean(block, map);
  } else {
    ++map->waiting;
    ++unasked_;
    freed_.push(block, block->born, reclaim, latest);
  }
  end_if_over(map, ended);
  return bytes;
}

[[gnu::cold]] void BlockPool::end(ChunkMap* map, ChunkList* ended) {
  remove_freed(map);
  map->chunk->exported.store(true, std::memory_order_relaxed);
  take_out(map, ended);
}

void BlockPool::make_clean(ChunkBlock* block, ChunkList* /*emptied*/) {
  if (ChunkMap* map = block->map(); map->live == 0) count_if_idle(map);
  if (block->exported != 0) [[unlikely]]
    return insert_known(block);
  if (keeps_sizes() && asked_of(block) != 0) [[unlikely]]
    return keep(block);
  block->become(BlockState::clean);
  if (becomes_ == Clean::merged) {
    block = merge(block);
  } else {
    unmerged_ = true;
  }
  insert(block);
}

// Joins a clean block that is in no bin with its clean neighbours, which are.
ChunkBlock* BlockPool::merge(ChunkBlock* block) {
  if (ChunkBlock* after = block->after; after != nullptr && after->is() == BlockState::clean) {
    remove(after);
    join(block, after);
  }
  if (ChunkBlock* before = block->before; before != nullptr && before->is() == BlockState::clean) {
    remove(before);
    block = join(before, block);
  }
  return block;
}

ChunkBlock* BlockPool::join(ChunkBlock* first, ChunkBlock* second) {
  table_.erase(second);
  second->map()->join(first, second);
  records_.give_back(second);
  return first;
}

void BlockPool::merge_everything() {
  unmerged_ = false;
  for (ChunkMap* map = maps_; map != nullptr; map = map->next) {
    for (ChunkBlock* block = map->first_block(); block != nullptr; block = block->after) {
      const ChunkBlock* after = block->after;
      if (block->is() != BlockState::clean || after == nullptr) continue;
      if (after->is() != BlockState::clean) continue;
      remove(block);
      while (block->after != nullptr && block->after->is() == BlockState::clean) {
        remove(block->after);
        join(block, block->after);
      }
      insert(block);
    }
  }
}

// Most callers have the start of the block, as every free has; that takes no search.
ChunkBlock* BlockPool::live_around(const Chunk* chunk, uint64_t address) {
  const ChunkMap* map = map_of(chunk);
  if (map == nullptr || !chunk->contains(address)) return nullptr;
  const auto granule = static_cast<uint32_t>((address - map->base) / kBlockGranule);
  ChunkBlock* block = table_.find_first(map, granule);
  if (block == nullptr) block = map->around(granule);
  const bool inside =
      block->is() == BlockState::live && address - block->address() < block->requested;
  return inside ? block : nullptr;
}

bool BlockPool::mark_exported(const Chunk* chunk, uint64_t address) {
  LockGuard guard(mutex_);
  ChunkBlock* block = live_around(chunk, address);
  if (block == nullptr) return false;
  block->exported = 1;
  return true;
}

// Takes the lock: otherwise a block could count twice or not at all on its way from one counter to
// the next.
uint64_t BlockPool::in_use_bytes() {
  LockGuard guard(mutex_);
  return chunk_bytes() - clean_bytes() - waiting_bytes() - parked_bytes() - garbage_bytes() -
         quarantined_bytes() - filling_bytes_.get() - moving_bytes_.get();
}

uint64_t BlockPool::largest_clean() {
  if (becomes_ != Clean::in_place) return PoolBase::largest_clean();
  LockGuard guard(mutex_);
  uint64_t bytes = 0;
  for (const ChunkMap* map = maps_; map != nullptr; map = map->next) {
    for (const ChunkBlock* block = map->first_block(); block != nullptr; block = block->after) {
      if (block->is() == BlockState::clean) bytes = std::max(bytes, block->bytes());
    }
  }
  return bytes;
}

uint64_t BlockPool::available_bytes(Reclaim& reclaim, bool all, bool parts) {
  LockGuard guard(mutex_);
  if (unit_ != 0) return available_in_units(reclaim, all);
  if (!all) {
    Ticket oldest, newest;
    const bool waits = freed_.range(&oldest, &newest) && newest > freed_.clean(reclaim);
    return clean_bytes() + room_bytes_.get() + filling_bytes_.get() +
           (waits ? 0 : waiting_bytes()) + freed_.clean_parked_bytes(reclaim) +
           (parts ? idle_rounding() : 0);
  }
  return clean_bytes() + room_bytes_.get() + waiting_bytes() + filling_bytes_.get() +
         parked_bytes() + garbage_bytes() + idle_rounding();
}

// Blocks at places that the caller names.

uint64_t BlockPool::allocate_at(uint64_t offset, uint64_t bytes, Reclaim& reclaim) {
  const auto start = static_cast<uint32_t>(offset / kBlockGranule);
  const uint32_t granules = granules_for(bytes);
  LockGuard guard(mutex_);
  if (closed() || maps_ == nullptr) return 0;
  if (align_ != 1 && granules >= align_) [[unlikely]] {
    if (((maps_->base / kBlockGranule + start) & (align_ - 1)) != 0) return 0;
  }
  ChunkBlock* block = waiting_bytes() == 0 ? table_.find_another(maps_, start) : nullptr;
  if (block != nullptr && block->granules == granules && block->is() == BlockState::clean) {
    count_taken(block);
  } else {
    block = cut_out(start, granules, reclaim);
  }
  if (block == nullptr) return 0;
  become_live(block, maps_, bytes, reclaim.epoch());
  return maps_->base + offset;
}

// A clean block of exactly this place, in no bin; nullptr if some of the memory is not clean.
ChunkBlock* BlockPool::cut_out(uint32_t start, uint32_t granules, Reclaim& reclaim) {
  constexpr int kRefreshedPerCall = 32;
  refresh_oldest(reclaim, kRefreshedPerCall, nullptr);
  ChunkBlock* block = cut_from(table_.find_another(maps_, start), start, granules);
  if (block != nullptr || waiting_bytes() == 0) return block;
  refresh_oldest(reclaim, INT_MAX, nullptr);
  return cut_from(table_.find_another(maps_, start), start, granules);
}

// Cuts the place from `block`, which begins there (nullptr: no block does, so it looks for the one
// around it), and from the blocks behind it. It joins only as many neighbours as needed, because
// the next request often wants one of them as it is.
ChunkBlock* BlockPool::cut_from(ChunkBlock* block, uint32_t start, uint32_t granules) {
  if (start >= maps_->granules || granules > maps_->granules - start) return nullptr;
  if (!records_.reserve(2)) return nullptr;
  if (block == nullptr) block = maps_->around(start);
  const uint32_t end = start + granules;
  const auto end_of = [](const ChunkBlock* one) { return one->start + one->granules; };
  for (const ChunkBlock* one = block;; one = one->after) {
    if (one->is() != BlockState::clean) return nullptr;
    if (end_of(one) >= end) break;
  }
  remove(block);
  while (end_of(block) < end) {
    remove(block->after);
    join(block, block->after);
  }
  if (block->start != start) {
    ChunkBlock* rest = split(block, start - block->start);
    insert(block);
    block = rest;
  }
  if (block->granules != granules) insert(split(block, granules));
  return block;
}

}  // namespace cistern::alloc
