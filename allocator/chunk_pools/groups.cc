// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/groups.h"

#include <algorithm>

namespace cistern::alloc {
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

bool Groups::may_join(const Slot& slot, uint64_t bytes) const {
  if (rules_.members != 0 && slot.members >= rules_.members) return false;
  return rules_.bytes == 0 || slot.used + rounded(bytes) <= rules_.bytes;
}

// What a group comes to that has `used` bytes in `members`, if the others are like `next`.
uint64_t Groups::usual(uint64_t used, uint64_t next, uint64_t members) const {
  if (rules_.members == 0) return 2 * (used + next);
  uint64_t rest;
  if (__builtin_mul_overflow(next, rules_.members - members, &rest)) return UINT64_MAX;
  return used + std::min(rest, UINT64_MAX - used);
}

uint64_t Groups::take_member(Caller caller, uint64_t bytes) {
  Slot& slot = slots_[caller.thread];
  ChunkList ended;
  uint64_t address = 0;
  {
    LockGuard guard(slot.mutex);
    if (slot.site == 0) return 0;
    const bool joins = slot.site == caller.site && may_join(slot, bytes);
    if (joins && slot.room != nullptr) {
      address = slot.pool->take_member(&slot.room, bytes, shared_->reclaim.epoch());
    }
    if (address != 0) {
      if (++slot.members == 2) ledger_->groups.add();
      ledger_->group_members.add(slot.members == 2 ? 2 : 1);
      slot.used += rounded(bytes);
      if (slot.members == rules_.members) {
        learn(slot, slot.used);
        end(slot, &ended);
      }
    } else {
      learn(slot, joins ? usual(slot.used, rounded(bytes), slot.members) : slot.used);
      end(slot, &ended);
    }
  }
  if (!ended.empty()) pools_->release_exported(&ended);
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
    if (slot.site != 0) end(slot, &ended);  // another thread's of the same number
    slot.site = caller.site;
    slot.pool = pool;
    slot.room = room;
    slot.first = bytes;
    slot.used = rounded(bytes);
    slot.members = 1;
  }
  if (!ended.empty()) pools_->release_exported(&ended);
}

void Groups::end(Slot& slot, ChunkList* ended) {
  if (slot.room != nullptr) ledger_->group_room.add(slot.pool->give_up_room(slot.room, ended));
  slot.room = nullptr;
  slot.site = 0;
}

template <typename Which>
void Groups::end_each(Which which) {
  if (!on()) return;
  ChunkList ended;
  for (Slot& slot : slots_) {
    LockGuard guard(slot.mutex);
    if (slot.site != 0 && which(slot)) end(slot, &ended);
  }
  if (!ended.empty()) pools_->release_exported(&ended);
}

void Groups::end_all() {
  end_each([](const Slot&) { return true; });
}

void Groups::end_idle() {
  end_each([](const Slot& slot) {
    return slot.room != nullptr && slot.pool->only_room_in_use(slot.room);
  });
}

void Groups::forget_all() {
  if (!on()) return;
  for (Slot& slot : slots_) {
    LockGuard guard(slot.mutex);
    slot.site = 0;
    slot.room = nullptr;
  }
}

void Groups::reset_after_fork() {
  for (Slot& slot : slots_) slot.mutex.reset();
  learnt_mutex_.reset();
}

void Groups::learn(const Slot& slot, uint64_t bytes) {
  LockGuard guard(learnt_mutex_);
  place_of(slot.site, slot.first) = {slot.site, slot.first, bytes};
}

Groups::Learnt& Groups::place_of(uint32_t site, uint64_t first) {
  const uint64_t product = (first + (uint64_t{site} << 40)) * 0x9E3779B97F4A7C15u;
  return learnt_[product >> 32 & (kLearnt - 1)];
}

}  // namespace cistern::alloc
