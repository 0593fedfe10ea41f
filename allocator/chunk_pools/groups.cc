// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/groups.h"

#include <algorithm>
#include <climits>
#include <iterator>

namespace cistern::alloc {

// --- groups ---

namespace {

uint64_t rounded(uint64_t bytes) { return round_up(bytes, kBlockGranule); }

}  // namespace

GroupRules group_rules(const config::Policy& policy) {
  const auto& size = policy.fuse_parameter_groups_size;
  const auto& mb = policy.fuse_parameter_memory_size;
  GroupRules rules;
  rules.on = (size.set || mb.set) && size != 1;
  rules.members = size < 0 ? 0 : static_cast<uint64_t>(size.value);
  // More than any device has is no limit either.
  constexpr double kMostMb = 1 << 30;
  rules.bytes = mb <= 0 || mb > kMostMb ? 0 : static_cast<uint64_t>(mb * (1 << 20));
  return rules;
}

void Groups::init(const GroupRules& rules, ChunkPools* pools, SharedChunks* shared,
                  Ledger* ledger) {
  rules_ = rules;
  pools_ = pools;
  shared_ = shared;
  ledger_ = ledger;
}

bool Groups::may_join(const Group& group, uint64_t bytes) const {
  if (rules_.members != 0 && group.members >= rules_.members) return false;
  return rules_.bytes == 0 || group.used + rounded(bytes) <= rules_.bytes;
}

// The expected bytes of a group that has `used` bytes in `members`, if the other members are like
// `next`.
uint64_t Groups::usual(uint64_t used, uint64_t next, uint64_t members) const {
  if (rules_.members == 0) return 2 * (used + next);
  uint64_t rest;
  if (__builtin_mul_overflow(next, rules_.members - members, &rest)) return UINT64_MAX;
  return used + std::min(rest, UINT64_MAX - used);
}

Groups::Group* Groups::group_of(Slot& slot, uint32_t site) {
  for (Group& group : slot.groups) {
    if (group.site == site) return &group;
  }
  return nullptr;
}

// With the lock: groups that the thread has left.
void Groups::end_left(Slot& slot, ChunkList* ended) {
  for (Group& group : slot.groups) {
    if (group.site == 0 || slot.requests - group.last <= kMostBetween) continue;
    learn(group, group.used);
    end(group, ended);
  }
}

uint64_t Groups::take_member(Caller caller, uint64_t bytes) {
  Slot& slot = slots_[caller.thread];
  ChunkList ended;
  uint64_t address = 0;
  {
    LockGuard guard(slot.mutex);
    ++slot.requests;
    end_left(slot, &ended);
    if (Group* group = group_of(slot, caller.site)) address = join(slot, *group, bytes, &ended);
  }
  if (!ended.empty()) pools_->release_exported(&ended);
  return address;
}

// With the lock: the next member, or 0, and the group has ended.
uint64_t Groups::join(const Slot& slot, Group& group, uint64_t bytes, ChunkList* ended) {
  const bool joins = may_join(group, bytes);
  uint64_t address = 0;
  if (joins && group.room != nullptr) {
    address = group.pool->take_member(&group.room, bytes, shared_->reclaim.epoch());
  }
  if (address == 0) {
    learn(group, joins ? usual(group.used, rounded(bytes), group.members) : group.used);
    end(group, ended);
    return 0;
  }
  if (++group.members == 2) ledger_->groups.add();
  ledger_->group_members.add(group.members == 2 ? 2 : 1);
  group.used += rounded(bytes);
  group.last = slot.requests;
  if (group.members == rules_.members) {
    learn(group, group.used);
    end(group, ended);
  }
  return address;
}

uint64_t Groups::room_for(Caller caller, uint64_t bytes) {
  const uint64_t first = rounded(bytes);
  uint64_t all = usual(first, first, 1);
  if (rules_.members == 0) all = 2 * first;
  {
    LockGuard guard(learnt_mutex_);
    const Learnt& learnt = place_of(caller.site, bytes);
    if (learnt.site == caller.site && learnt.first == bytes) all = learnt.bytes;
  }
  if (rules_.bytes != 0) all = std::min(all, rules_.bytes / kBlockGranule * kBlockGranule);
  return all <= first || all > ChunkMap::kMaxBytes ? 0 : all - first;
}

void Groups::begin(Caller caller, uint64_t bytes) { begin(caller, bytes, nullptr, nullptr); }

void Groups::begin(Caller caller, uint64_t bytes, BlockPool* pool, ChunkBlock* room) {
  Slot& slot = slots_[caller.thread];
  ChunkList ended;
  {
    LockGuard guard(slot.mutex);
    Group& group = place_for(slot, caller.site);
    if (group.site != 0) {
      if (group.site != caller.site) learn(group, group.used);
      end(group, &ended);
    }
    group = {caller.site, pool, room, bytes, rounded(bytes), 1, slot.requests};
  }
  if (!ended.empty()) pools_->release_exported(&ended);
}

// With the lock: the site's own place, which another thread of the same number may have taken; or a
// free one; or that of the group that has been without a new member longest.
Groups::Group& Groups::place_for(Slot& slot, uint32_t site) {
  if (Group* group = group_of(slot, site)) return *group;
  if (Group* free = group_of(slot, 0)) return *free;
  return *std::min_element(std::begin(slot.groups), std::end(slot.groups),
                           [](const Group& a, const Group& b) { return a.last < b.last; });
}

void Groups::end(Group& group, ChunkList* ended) {
  if (group.room != nullptr) ledger_->group_room.add(group.pool->give_up_room(group.room, ended));
  group.room = nullptr;
  group.site = 0;
}

template <typename Which>
void Groups::end_each(Which which) {
  if (!on()) return;
  ChunkList ended;
  for (Slot& slot : slots_) {
    LockGuard guard(slot.mutex);
    for (Group& group : slot.groups) {
      if (group.site != 0 && which(group)) end(group, &ended);
    }
  }
  if (!ended.empty()) pools_->release_exported(&ended);
}

void Groups::end_all() {
  end_each([](const Group&) { return true; });
}

void Groups::end_idle() {
  end_each([](const Group& group) {
    return group.room != nullptr && group.pool->only_room_in_use(group.room);
  });
}

void Groups::forget_all() {
  if (!on()) return;
  for (Slot& slot : slots_) {
    LockGuard guard(slot.mutex);
    for (Group& group : slot.groups) {
      group.site = 0;
      group.room = nullptr;
    }
  }
}

void Groups::reset_after_fork() {
  for (Slot& slot : slots_) slot.mutex.reset();
  learnt_mutex_.reset();
}

void Groups::learn(const Group& group, uint64_t bytes) {
  LockGuard guard(learnt_mutex_);
  place_of(group.site, group.first) = {group.site, group.first, bytes};
}

Groups::Learnt& Groups::place_of(uint32_t site, uint64_t first) {
  static_assert(kLearnt == 1 << 10);
  const uint64_t product = (first * 0x9E3779B97F4A7C15u + site) * 0xC2B2AE3D27D4EB4Fu;
  return learnt_[product >> 54];
}

// --- room behind a block for others of its group ---

ChunkBlock* BlockPool::cut_room(const Chunk* chunk, uint64_t address) {
  LockGuard guard(mutex_);
  ChunkBlock* block = live_at(chunk, address);
  if (block == nullptr) return nullptr;
  const uint32_t granules = granules_for(block->requested);
  if (block->granules == granules || !records_.reserve(1)) return nullptr;
  ChunkBlock* room = split(block, granules);
  become_room(room);
  return room;
}

bool BlockPool::only_room_in_use(const ChunkBlock* room) {
  LockGuard guard(mutex_);
  return !closed() && room->map()->live == 1;
}

uint64_t BlockPool::allocate_same(uint64_t bytes, Reclaim& reclaim) {
  const uint32_t granules = granules_for(bytes);
  LockGuard guard(mutex_);
  if (closed()) return 0;
  refresh_oldest(reclaim, INT_MAX, nullptr);
  ChunkBlock* block = find_kept(granules, bytes);
  return block == nullptr ? 0 : hand_out(block, granules, 1, bytes, reclaim.epoch());
}

void BlockPool::become_room(ChunkBlock* block) {
  block->become(BlockState::room);
  block->exported = 0;
  block->asked_bits = 0;  // nobody asked for it
  ++block->map()->live;
  ++block->map()->rooms;
  room_bytes_.own_add(block->bytes());
}

uint64_t BlockPool::take_member(ChunkBlock** room, uint64_t bytes, Epoch born) {
  const uint32_t granules = granules_for(bytes);
  LockGuard guard(mutex_);
  ChunkBlock* block = *room;
  if (closed() || !records_.reserve(2)) return 0;
  if (granules >= align_ && block->to_aligned(align_) != 0) return 0;
  if (block->granules < granules && !extend_room(block, granules)) return 0;
  room_bytes_.own_sub(block->bytes());
  if (ChunkMap* map = block->map(); map->live == map->rooms--) {
    idle_rounding_.own_sub(map->rounding);
  }
  *room = nullptr;
  if (block->granules != granules) {
    *room = split(block, granules);
    become_room(*room);
  }
  block->become(BlockState::live);
  block->born = born;
  block->requested = bytes;
  note_handed_out(bytes);
  return block->address();
}

bool BlockPool::extend_room(ChunkBlock* room, uint32_t granules) {
  ChunkBlock* after = room->after;
  if (after == nullptr || after->is() != BlockState::clean) return false;
  if (uint64_t{room->granules} + after->granules < granules) return false;
  room_bytes_.own_sub(room->bytes());
  remove(after);
  join(room, after);
  if (room->granules != granules) insert(split(room, granules));
  room_bytes_.own_add(room->bytes());
  return true;
}

// The room is joined with clean memory behind it even if the strategy merges later, because it was
// cut from there.
uint64_t BlockPool::give_up_room(ChunkBlock* room, ChunkList* ended) {
  LockGuard guard(mutex_);
  if (closed()) return 0;
  ChunkMap* map = room->map();
  const uint64_t bytes = room->bytes();
  room_bytes_.own_sub(bytes);
  --map->live;
  --map->rooms;
  ChunkBlock* after = room->after;
  if (after != nullptr && after->is() == BlockState::clean) {
    remove(after);
    join(room, after);
  }
  make_clean(room, nullptr);
  end_if_over(map, ended);
  return bytes;
}

}  // namespace cistern::alloc
