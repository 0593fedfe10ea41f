// SPDX-License-Identifier: Apache-2.0
// Blocks inside large chunks: the one structure under all chunk strategies. A block goes from live
// to waiting (a queue in the order of the frees) to clean (in bins by size, merged with its clean
// neighbours at once or, where the strategy says so, when a request misses). Any thread: every
// function takes the pool's own lock. None calls the driver; chunks in which nothing is live are
// handed to the caller. block_pool.cc has the way of a block, block_pool_chunks.cc that of a chunk,
// block_pool_units.cc that of the memory behind a range of addresses (allocator/expandable).
#pragma once

#include "allocator/chunk/chunk.h"
#include "allocator/chunk/pool_base.h"
#include "allocator/chunk_pools/blocks.h"
#include "allocator/reclaim/idle_release.h"

namespace cistern::alloc {

class alignas(128) BlockPool : public PoolBase<BlockPool, ChunkBlock, 29> {  // to 2^32 granules
 public:
  // What becomes of a clean block. `merged`: one with its clean neighbours. `as_it_was`: the same,
  // but only when a request misses. `in_place`: as it was, too, and in no bin, since requests say
  // where they want their block (allocate_at()).
  enum class Clean : uint8_t { merged, as_it_was, in_place };

  // PoolBase::begin(). `here`: what its chunks say of themselves.
  void init(BlockPages* pages, Ledger* ledger, Garbage* garbage, Place here, uint32_t party,
            Clean becomes, uint64_t align, bool gathers, ReuseRule rule);

  // How hard to look for a block. `first`: gives up with ask_first rather than cut up a larger
  // block while enough for the request may be clean by now, or walk on through a large chunk (and
  // its bookkeeping) while much is waiting. `thorough`: every free block, not a few of the right
  // size.
  enum class Search : uint8_t { first, normal, thorough };

  // The address of a clean block of `bytes`, or 0.
  uint64_t allocate(uint64_t bytes, Reclaim& reclaim, Search search, bool* ask_first = nullptr) {
    return allocate(granules_for(bytes), bytes, reclaim, search, ask_first);
  }
  // The same, with `room` bytes behind it that are the block's, too, until cut_room().
  uint64_t allocate_with_room(uint64_t bytes, uint64_t room, Reclaim& reclaim, Search search,
                              bool* ask_first = nullptr) {
    return allocate(granules_for(bytes + room), bytes, reclaim, search, ask_first);
  }

  // Of Clean::in_place: the block of `bytes` that begins `offset` bytes into the newest chunk of
  // the pool, or 0: some of that is not clean. `offset` is a multiple of the granule.
  uint64_t allocate_at(uint64_t offset, uint64_t bytes, Reclaim& reclaim);

  // Takes a chunk with its fresh map (ChunkMap::own is the caller's), and at once a block of
  // `bytes` from it, so that no other thread gets its space before: the address, 0 where no aligned
  // block fits, or no bytes are wanted. False, and nothing taken, when there is no memory for
  // bookkeeping.
  bool add(Chunk* chunk, ChunkMap* map, uint64_t bytes, uint64_t room, Epoch born,
           uint64_t* address);

  // What the program had asked for; 0 when `address` is not the start of a live block of this pool.
  // `chunk` is what the index said; it may have another meaning by now. When the last live block of
  // a chunk with blocks in quarantine goes, so does the chunk, through `ended`: for the driver,
  // never for reuse. `latest`: FreedQueue::push().
  uint64_t free(const Chunk* chunk, uint64_t address, Reclaim& reclaim, ChunkList* ended,
                Ticket latest = Reclaim::kNow);

  // For groups (groups.h). Cuts the room off the live block at `address`: a block in
  // BlockState::room, which its chunk counts as live, or nullptr. Takes a member of `bytes` from
  // the front of it, and of what is clean behind it where it must: the address, or 0. Gives it up:
  // it is clean; its bytes.
  ChunkBlock* cut_room(const Chunk* chunk, uint64_t address);
  uint64_t take_member(ChunkBlock** room, uint64_t bytes, Epoch born);
  uint64_t give_up_room(ChunkBlock* room, ChunkList* ended);
  // Whether nothing else of its chunk is live.
  bool only_room_in_use(const ChunkBlock* room);

  // The address of a clean block that was freed with just this size, or 0 (ReuseRule::same_size).
  uint64_t allocate_same(uint64_t bytes, Reclaim& reclaim);

  // Another process or device may know the live block around `address`, and nobody says when it is
  // done with it: once freed it is in quarantine until its chunk goes back to the driver. False
  // when there is none. Only this block, since a chunk may be most of the device.
  bool mark_exported(const Chunk* chunk, uint64_t address);

  // Takes out every chunk in which nothing is live. With `freed_too` also those whose last blocks
  // may still be in use: good for returning them to the driver, not for reuse. What lacks only a
  // gathered fill goes unfilled. The maps stay attached (Chunk::map), for the caller to close.
  void collect_idle(Reclaim& reclaim, bool freed_too, ChunkList* out);

  // Whether no earlier work can touch anything that was freed: with fills gathered it may be clean
  // but for its fill, which the source does not need.
  bool all_freed_is_over(Reclaim& reclaim) {
    LockGuard guard(mutex_);
    return freed_is_over(reclaim);
  }

  // What became clean since is merged, as the strategy does it, now.
  void refresh(Reclaim& reclaim);

  // For a sweep at `now`: the chunks in which nothing is live nor waits, each with its age from
  // here on.
  IdleChunks see_idle(Tick now);
  // Takes out one of them that is that old, and has `most` bytes at most, if there is any.
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most);

  // For ranges of addresses, which come in as one hole and never leave: a pool has either these or
  // chunks. Holes begin and end at whole units, of `unit` granules each. What a thread takes out
  // below is BlockState::moving, and in nobody's reach until the thread gives it back.

  // Before the first range. `whole`: every block begins and ends at a unit.
  void use_units(uint32_t unit, bool whole) {
    unit_ = unit;
    whole_ = whole;
  }
  // Takes a range with its fresh map. False when there is no memory for bookkeeping. `behind`:
  // ChunkMap::units, zeroes.
  bool add_range(Chunk* range, ChunkMap* map, Unit* behind);

  // Addresses side by side that suffice for a request once there is memory behind `hole`, and clean
  // memory before and after it (or nullptr) that is part of it.
  struct Gap {
    ChunkBlock *before, *hole, *after;
    uint32_t units;     // of the hole
    ChunkBlock* spare;  // a record, to cut the hole
  };
  // The gap that takes the fewest units; false when no range has one.
  bool open_gap(uint32_t granules, Gap* gap);
  // There is memory behind the first `filled` units of the hole. If those are all of them, takes a
  // block of `bytes` there: the address. 0: everything is clean, or a hole again.
  uint64_t close_gap(const Gap& gap, uint32_t filled, uint32_t granules, uint64_t bytes,
                     Epoch born);

  // Clean memory of whole units side by side, `most` at most; nullptr when there is none.
  ChunkBlock* take_units(uint32_t most, Reclaim& reclaim);
  // What is known outside the process (mark_exported()) and was freed since: whole units side by
  // side in which nothing else is in use. They are for the source alone; nullptr when there are
  // none.
  ChunkBlock* take_known_units(Reclaim& reclaim);
  // Whether there may be some: not again before as much was added as was looked at in vain.
  bool look_for_known() const {
    const uint64_t known = quarantined_bytes();
    return known != 0 && known >= look_from_.get();
  }
  // The memory is gone; or it is not, and what it was again.
  void make_hole(ChunkBlock* moving);
  void put_back_units(ChunkBlock* moving);
  // How many units take_units() could give.
  uint32_t whole_units(Reclaim& reclaim);
  // The first run of addresses at or behind *address that has memory behind it.
  bool next_mapped(uint64_t* address, uint64_t* bytes);

  // Whether there is one of them.
  bool any_idle_chunk();
  // Their bytes, without a lock. Not of Clean::in_place.
  uint64_t idle_chunk_bytes() const { return idle_chunk_bytes_.get(); }
  const Counter* idle_chunk_counter() const { return &idle_chunk_bytes_; }
  // Takes out the one that has been here longest, if there is any.
  void collect_one_idle(ChunkList* out, bool newest_too = true);

  // Once it is close()d and nothing is in_hand(). Counters stay.
  void forget_all();

  // No chunk but such as were made for one request (ChunkMap::own).
  bool no_chunk_yet() const { return chunks() == 0; }
  // All others, and the bytes of all chunks, or of what is behind the ranges; without the lock.
  uint64_t chunks() const { return chunks_.get(); }
  uint64_t chunk_bytes() const { return chunk_bytes_.get(); }
  // Of those, what the program holds, as blocks are rounded.
  uint64_t in_use_bytes();
  // What requests can still be served from: here or, of chunks in which nothing is live, by the
  // driver, which gets what it rounded up to its pages back with them. Not `all`: what is clean
  // alone; not `parts`: nothing of that can go to the driver.
  uint64_t available_bytes(Reclaim& reclaim, bool all, bool parts);

  uint64_t largest_clean();

  // Of the chunk that came last, if it is here; without the lock.
  uint64_t newest_chunk_bytes() const { return newest_bytes_.get(); }

  std::atomic<bool> growing{false};  // a thread is taking a chunk for this pool

 private:
  friend PoolBase;

  ChunkMap* map_of(const Chunk* chunk) const { return has(chunk) ? chunk->map() : nullptr; }
  ChunkBlock* live_around(const Chunk* chunk, uint64_t address);
  void end_if_over(ChunkMap* map, ChunkList* ended) {
    if (map->quarantined != 0 && !map->in_use()) [[unlikely]]
      end(map, ended);
  }
  void end(ChunkMap* map, ChunkList* ended);
  void remove_freed(const ChunkMap* only);
  bool freed_is_over(Reclaim& reclaim);
  void make_clean(ChunkBlock* block, ChunkList* emptied);
  void become_clean(ChunkBlock* block, ChunkMap* map);
  static void set_clean(ChunkBlock* block) { block->become(BlockState::clean); }
  ChunkBlock* merge(ChunkBlock* block);
  void merge_everything();
  ChunkBlock* join(ChunkBlock* first, ChunkBlock* second);
  uint64_t allocate(uint32_t granules, uint64_t bytes, Reclaim& reclaim, Search search,
                    bool* ask_first);
  ChunkBlock* find_clean(uint32_t granules, uint32_t align, Search search) const;
  [[gnu::cold]] ChunkBlock* find_by_rule(uint32_t granules, uint64_t bytes, uint32_t align);
  ChunkBlock* find_aligned(uint32_t granules, uint32_t align) const;
  uint64_t take(uint32_t granules, uint64_t bytes, Epoch born, Search search);
  uint64_t take_more(uint32_t granules, uint64_t bytes, Epoch born, Search search, Ticket clean);
  bool worth_asking(uint32_t granules) const;
  uint64_t hand_out(ChunkBlock* block, uint32_t granules, uint32_t align, uint64_t bytes,
                    Epoch born);
  void become_live(ChunkBlock* block, ChunkMap* map, uint64_t bytes, Epoch born);
  uint64_t become_live(ChunkBlock* block, uint64_t bytes, Epoch born) {
    become_live(block, block->map(), bytes, born);
    return block->address();
  }
  [[gnu::noinline]] ChunkBlock* cut_out(uint32_t start, uint32_t granules, Reclaim& reclaim);
  ChunkBlock* cut_from(ChunkBlock* block, uint32_t start, uint32_t granules);
  ChunkBlock* split(ChunkBlock* block, uint32_t granules);
  ChunkBlock* live_at(const Chunk* chunk, uint64_t address);
  bool extend_room(ChunkBlock* room, uint32_t granules);
  void become_room(ChunkBlock* block);
  void insert(ChunkBlock* block);
  void remove(ChunkBlock* block);
  void take_out(ChunkMap* map, ChunkList* out);
  struct Site;
  void consider(ChunkBlock* hole, uint32_t granules, Site* best) const;
  void keep_surplus(const ChunkBlock* before, const ChunkBlock* hole, ChunkBlock* after,
                    uint32_t granules);
  void start_moving(ChunkBlock* block);
  void make_hole_locked(ChunkBlock* block);
  void insert_hole(ChunkBlock* block);
  void remove_hole(ChunkBlock* block) { remove_from(&holes_, block); }
  [[gnu::cold]] void insert_known(ChunkBlock* block);
  void remove_known(ChunkBlock* block);
  ChunkBlock* cut_unit(ChunkMap* map, uint32_t begin);
  ChunkBlock* cut_known(ChunkBlock* block, uint64_t* held);
  static void insert_into(ChunkBlock** list, ChunkBlock* block);
  static void remove_from(ChunkBlock** list, ChunkBlock* block);
  struct WholeUnits {
    uint32_t front, granules;
  };
  WholeUnits whole_units_in(const ChunkBlock* block) const;
  uint64_t whole_unit_bytes() const;
  uint64_t unused_unit_bytes() const;
  uint64_t available_in_units(Reclaim& reclaim, bool all);
  void take_out_idle(ChunkMap* map, ChunkList* out);
  void count_if_idle(ChunkMap* map) {
    if (counts_idle() && map->idle_now() != map->idle) count_changed(map);
  }
  void count_changed(ChunkMap* map);
  [[gnu::always_inline]] void count_in_use(ChunkMap* map) {
    idle_rounding_.own_sub(map->rounding);
    if (map->idle) count_changed(map);
  }
  // A pool in which blocks stay in place has a chunk or two. They are looked at, not counted.
  bool counts_idle() const { return becomes_ != Clean::in_place; }
  uint64_t idle_rounding() const;

  uint32_t align_;  // in granules
  Clean becomes_;
  // A free makes a block clean if no work uses it. Otherwise the next request does.
  bool cleans_in_free_;
  uint32_t unit_ = 0;   // in granules; 0: of chunks
  bool whole_ = false;  // see use_units()
  ChunkBlock* holes_ = nullptr;
  ChunkBlock* known_ = nullptr;  // BlockState::known
  Counter look_from_;            // bytes of them, see look_for_known()
  bool unmerged_ = false;        // something became clean since everything was merged
  uint32_t unasked_ = 0;         // blocks freed since ask_first was the answer
  ChunkMap* maps_ = nullptr;
  Counter chunks_, chunk_bytes_;
  Counter newest_bytes_;  // of the first of maps_
  Counter moving_bytes_;  // of those: BlockState::moving
  Counter room_bytes_;
  Counter idle_chunk_bytes_;
  Counter idle_rounding_;  // of chunks with nothing live but room, up to whole driver pages
  BlockRecords records_;
  BlockTable table_;
};

// The live block that starts at `address`, or nullptr.
[[gnu::always_inline]] inline ChunkBlock* BlockPool::live_at(const Chunk* chunk, uint64_t address) {
  const ChunkMap* map = map_of(chunk);
  if (map == nullptr || !chunk->contains(address)) return nullptr;
  const uint64_t offset = address - map->base;
  ChunkBlock* block = table_.find(map, static_cast<uint32_t>(offset / kBlockGranule));
  if (block == nullptr || offset % kBlockGranule != 0) return nullptr;
  return block->is() == BlockState::live ? block : nullptr;
}

[[gnu::always_inline]] inline void BlockPool::insert(ChunkBlock* block) {
  block->become(BlockState::clean);
  becomes_ == Clean::in_place ? count_clean(block) : PoolBase::insert(block);
}

[[gnu::always_inline]] inline void BlockPool::remove(ChunkBlock* block) {
  becomes_ == Clean::in_place ? count_taken(block) : PoolBase::remove(block);
}

[[gnu::always_inline]] inline void BlockPool::become_live(ChunkBlock* block, ChunkMap* map,
                                                          uint64_t bytes, Epoch born) {
  block->become(BlockState::live);
  block->exported = 0;
  block->born = born;
  block->requested = bytes;
  if (map->live++ == map->rooms) {
    map->chunk->idle_since = kNotSeen;
    if (counts_idle()) count_in_use(map);
  }
  note_handed_out(bytes);
}

}  // namespace cistern::alloc
