// SPDX-License-Identifier: Apache-2.0
// Groups of one context (FLAGS_fuse_parameter_groups_size, FLAGS_fuse_parameter_memory_size):
// consecutive allocations of one thread from one call site lie side by side, each where the one
// before it ends (rounded up to 512 bytes), so that the program can use them as one buffer. Other
// sites may allocate in between: weight, bias, weight, bias are two groups.
//
// Members are ordinary blocks of a BlockPool: each is freed by itself, and its memory waits and is
// reused as usual. Their pool is the strategy's own. Under the default strategy, AnyStrategy keeps
// a pool for them.
//
// When the first member comes, the sizes of the others are unknown. The first member reserves room
// (BlockState::room) for as many members of its size as a group has. If that number has no limit,
// it reserves room for one more. If an earlier group of this site began with the same size, it
// reserves the total size of that group, including a member that did not fit. If clean memory
// follows, the room grows when a member needs it. A group ends when it is full, when its site's
// next allocation does not fit, when its thread has made kMostBetween other allocations since, and
// when memory is short. The rest of its room is then clean memory again. A site whose last group
// had one member is served outside of groups until it allocates twice within kMostBetween. Under
// ReuseRule::same_size a freed member of the requested size is reused before a new group begins.
//
// Any thread. A slot belongs to the threads of one number, and has its own lock. No lock is held
// while the source is called.
#pragma once

#include "allocator/chunk_pools/chunk_pools.h"

namespace cistern::alloc {

struct GroupRules {
  bool on = false;
  uint64_t members = 0;  // 0: no limit
  uint64_t bytes = 0;    // 0: no limit
};

GroupRules group_rules(const config::Policy& policy);

class Groups {
 public:
  // `pools`: those that hold the members, unless memory is units.
  void init(const GroupRules& rules, ChunkPools* pools, SharedChunks* shared, Ledger* ledger);
  bool on() const { return rules_.on; }

  // Who requests: the thread's number, below kMostThreads, and the call site, not 0.
  struct Caller {
    unsigned thread;
    uint32_t site;
  };

  // Takes the next member of the caller's group. 0 if the caller has no group, or if its group ends
  // because the request does not fit.
  uint64_t take_member(Caller caller, uint64_t bytes);

  // Bytes of room to reserve behind a first member; 0 if the request begins no group.
  uint64_t room_for(Caller caller, uint64_t bytes);

  // A first member was handed out at `address`, with or without room.
  void begin(Caller caller, uint64_t bytes);
  void begin(Caller caller, uint64_t bytes, BlockPool* pool, ChunkBlock* room);

  // Memory is short: all room is clean memory again.
  void end_all();
  // As end_all(), but only for groups whose chunks hold nothing else that is live.
  void end_idle();

  // The context is gone, and nothing of it is in hand.
  void forget_all();
  void reset_after_fork();

 private:
  static constexpr unsigned kMostOpen = 8;      // per thread; a further group replaces the oldest
  static constexpr uint64_t kMostBetween = 16;  // other requests of its thread end a group

  struct Group {
    uint32_t site;  // 0: no group
    BlockPool* pool;
    ChunkBlock* room;
    uint64_t first;  // bytes asked for the first member
    uint64_t used;   // bytes of all members, rounded up
    uint64_t members;
    uint64_t last;  // number of the thread's request that was the last member
  };
  struct Slot {
    Mutex mutex;
    uint64_t requests;
    Group groups[kMostOpen];
  };

  // The total bytes of the last group that began at this site with this size. A group whose hash is
  // the same replaces it.
  struct Learnt {
    uint32_t site;
    uint64_t first, bytes;
  };
  static constexpr uint32_t kLearnt = 1024;

  bool may_join(const Group& group, uint64_t bytes) const;
  uint64_t usual(uint64_t used, uint64_t next, uint64_t members) const;
  static Group* group_of(Slot& slot, uint32_t site);
  Group& place_for(Slot& slot, uint32_t site);
  void end_left(Slot& slot, ChunkList* ended);
  uint64_t join(const Slot& slot, Group& group, uint64_t bytes, ChunkList* ended);
  void learn(const Group& group, uint64_t bytes);
  void end(Group& group, ChunkList* ended);
  template <typename Which>
  void end_each(Which which);
  Learnt& place_of(uint32_t site, uint64_t first);

  GroupRules rules_;
  ChunkPools* pools_;
  SharedChunks* shared_;
  Ledger* ledger_;
  Slot slots_[kMostThreads];
  Mutex learnt_mutex_;
  Learnt learnt_[kLearnt];
};

}  // namespace cistern::alloc
