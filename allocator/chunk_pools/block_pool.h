// SPDX-License-Identifier: Apache-2.0
// Blocks inside large chunks: the one structure under all chunk strategies. A block goes from live
// to waiting (a queue in the order of the frees) to clean (in bins by size). Depending on the
// strategy, a clean block is merged with its clean neighbours at once, or when a request misses.
// Any thread: functions take the pool's own lock unless they say otherwise. None calls the driver;
// chunks in which nothing is live are handed to the caller. block_pool.cc is about blocks,
// block_pool_chunks.cc about chunks, groups.cc about room for groups, block_pool_units.cc about the
// memory behind ranges of addresses (allocator/expandable).
#pragma once

#include "allocator/chunk/chunk.h"
#include "allocator/chunk/pool_base.h"
#include "allocator/chunk_pools/blocks.h"
#include "allocator/reclaim/idle_release.h"

namespace cistern::alloc {

class alignas(128) BlockPool : public PoolBase<BlockPool, ChunkBlock, 29> {  // to 2^32 granules
 public:
  // What happens to a block that becomes clean. `merged`: it is merged with its clean neighbours at
  // once. `as_it_was`: it is merged only when a request misses. `in_place`: the same, and it is in
  // no bin, because requests name the place of their block (allocate_at()).
  enum class Clean : uint8_t { merged, as_it_was, in_place };

  // PoolBase::begin(). `here`: the place of its chunks. `align`: bytes, for blocks at least that
  // large.
  void init(BlockPages* pages, Ledger* ledger, Garbage* garbage, Place here, uint32_t party,
            Clean becomes, uint64_t align, bool gathers, ReuseRule rule);

  // How hard to look for a block. `first`: while waiting blocks may have become clean, gives up and
  // sets *ask_first, instead of cutting up a much larger block or spreading over ever more memory.
  // `normal`: looks at a few blocks of the right size. `thorough`: looks at every free block, not
  // only at a few of the right size.
  enum class Search : uint8_t { first, normal, thorough };

  // The address of a clean block of `bytes`, or 0.
  uint64_t allocate(uint64_t bytes, Reclaim& reclaim, Search search, bool* ask_first = nullptr) {
    return allocate(granules_for(bytes), bytes, reclaim, search, ask_first);
  }
  // As allocate(), with `room` more bytes behind the request. They belong to the block until
  // cut_room().
  uint64_t allocate_with_room(uint64_t bytes, uint64_t room, Reclaim& reclaim, Search search,
                              bool* ask_first = nullptr) {
    return allocate(granules_for(bytes + room), bytes, reclaim, search, ask_first);
  }

  // For Clean::in_place: allocates `bytes` at `offset` in the newest chunk of the pool. Returns the
  // address, or 0 if some of that memory is not clean. `offset` is a multiple of the granule.
  uint64_t allocate_at(uint64_t offset, uint64_t bytes, Reclaim& reclaim);

  // Adds a chunk with its new map; the caller has set ChunkMap::own. At once allocates `bytes` from
  // it, so that no other thread takes the space first. *address is 0 if no aligned block fits or no
  // bytes are wanted. False, and nothing is added, if the context is gone or there is no memory for
  // bookkeeping.
  bool add(Chunk* chunk, ChunkMap* map, uint64_t bytes, uint64_t room, Epoch born,
           uint64_t* address);

  // Returns the requested size; 0 if `address` is not the start of a live block of this pool.
  // `chunk` is what the index returned; its record may have been recycled since. If this was the
  // last live block of a chunk with blocks in quarantine, the chunk leaves through `ended`, for the
  // driver and never for reuse. `latest`: see FreedQueue::push().
  uint64_t free(const Chunk* chunk, uint64_t address, Reclaim& reclaim, ChunkList* ended,
                Ticket latest = Reclaim::kNow);

  // For groups (groups.h). cut_room(): cuts the room off the live block at `address`. Returns a
  // block in BlockState::room, which its chunk counts as live; nullptr if there is no room.
  // take_member(): takes a member of `bytes` from the front of the room, which grows into clean
  // memory behind it if needed. Returns the address or 0, and the rest of the room in *room.
  // give_up_room(): makes the room clean. Returns its bytes.
  ChunkBlock* cut_room(const Chunk* chunk, uint64_t address);
  uint64_t take_member(ChunkBlock** room, uint64_t bytes, Epoch born);
  uint64_t give_up_room(ChunkBlock* room, ChunkList* ended);
  // Whether nothing else in the room's chunk is live.
  bool only_room_in_use(const ChunkBlock* room);

  // The address of a clean block that was kept for exactly this size, or 0 (ReuseRule::same_size).
  uint64_t allocate_same(uint64_t bytes, Reclaim& reclaim);

  // Another process or device may know the live block around `address`, and does not say when it is
  // done. So once freed, the block is in quarantine until its chunk goes back to the driver. This
  // concerns only the block, because a chunk may be most of the device. False if there is no live
  // block.
  bool mark_exported(const Chunk* chunk, uint64_t address);

  // Takes out every chunk in which nothing is live and nothing waits. With `freed_too` also those
  // whose freed blocks may still be in use: such chunks may go to the driver, but must not be
  // reused. Blocks that wait only for a gathered fill go unfilled. The maps stay attached
  // (Chunk::map); the caller closes them.
  void collect_idle(Reclaim& reclaim, bool freed_too, ChunkList* out);

  // Whether no earlier work can touch any freed block. With gathered fills such blocks may still
  // wait for their fill, which does not matter to the source.
  bool all_freed_is_over(Reclaim& reclaim) {
    LockGuard guard(mutex_);
    return freed_is_over(reclaim);
  }

  // Makes freed blocks clean that no work can touch any more, and merges them if the strategy does.
  void refresh(Reclaim& reclaim);

  // For a sweep at `now`: the idle chunks. Each that no sweep has seen yet gets `now` as its tick.
  IdleChunks see_idle(Tick now);
  // Takes out one idle chunk of at most `most` bytes whose age is at least `least` ticks, if there
  // is one.
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most);

  // For ranges of addresses. A pool has either ranges or chunks. A range comes in as one hole and
  // never leaves. Holes begin and end at whole units. Memory that a thread takes out below is in
  // BlockState::moving, and no other thread can use it until that thread gives it back.

  // Call it before the first range. `unit`: granules of a unit. `whole`: every block begins and
  // ends at a unit.
  void use_units(uint32_t unit, bool whole) {
    unit_ = unit;
    whole_ = whole;
  }
  // Adds a range with its new map. `behind`: zeroes for ChunkMap::units. False if the context is
  // gone or there is no memory for bookkeeping.
  bool add_range(Chunk* range, ChunkMap* map, Unit* behind);

  // Contiguous addresses that are enough for a request once there is memory behind `hole`. `before`
  // and `after`: clean memory beside the hole that is part of the gap, or nullptr.
  struct Gap {
    ChunkBlock *before, *hole, *after;
    uint32_t units;     // of the hole
    ChunkBlock* spare;  // a record for cutting the hole
  };
  // Takes out the gap that needs the fewest units. False if no range has a gap for `granules`.
  bool open_gap(uint32_t granules, Gap* gap);
  // Ends a gap: there is memory behind the first `filled` units of its hole now. If that is the
  // whole hole, allocates `bytes` there and returns the address. Otherwise returns 0: units with
  // memory are clean, and the rest is a hole again.
  uint64_t close_gap(const Gap& gap, uint32_t filled, uint32_t granules, uint64_t bytes,
                     Epoch born);

  // Takes out contiguous clean memory of whole units, `most` units at most; nullptr if there is
  // none.
  ChunkBlock* take_units(uint32_t most, Reclaim& reclaim);
  // Takes out contiguous whole units of freed blocks that are known outside the process
  // (mark_exported()), if nothing else in the units is in use. They may only go to the source.
  // nullptr if there are none.
  ChunkBlock* take_known_units(Reclaim& reclaim);
  // Whether take_known_units() may find some. After a search in vain, false until the quarantined
  // bytes have doubled.
  bool look_for_known() const {
    const uint64_t known = quarantined_bytes();
    return known != 0 && known >= look_from_.get();
  }
  // Both end BlockState::moving. make_hole(): the memory is gone. put_back_units(): it stayed, and
  // is clean again.
  void make_hole(ChunkBlock* moving);
  void put_back_units(ChunkBlock* moving);
  // How many units take_units() could give.
  uint32_t whole_units(Reclaim& reclaim);
  // The first run of addresses at or above *address with memory behind it; false if there is none.
  bool next_mapped(uint64_t* address, uint64_t* bytes);

  // Whether there is an idle chunk. Takes the lock.
  bool any_idle_chunk();
  // Bytes of idle chunks, without a lock. Not for Clean::in_place.
  uint64_t idle_chunk_bytes() const { return idle_chunk_bytes_.get(); }
  const Counter* idle_chunk_counter() const { return &idle_chunk_bytes_; }
  // Takes out the idle chunk that has been here longest, if there is one. `newest_too`: even the
  // newest chunk.
  void collect_one_idle(ChunkList* out, bool newest_too = true);

  // Call it after close(), once in_hand() is 0. The counts of allocations and frees stay.
  void forget_all();

  // Whether every chunk so far was made for one request (ChunkMap::own).
  bool no_chunk_yet() const { return chunks() == 0; }
  // chunks(): those that were not made for one request. chunk_bytes(): bytes of all chunks, or of
  // the memory behind the ranges. Without the lock.
  uint64_t chunks() const { return chunks_.get(); }
  uint64_t chunk_bytes() const { return chunk_bytes_.get(); }
  // Bytes of blocks that the program holds, with rounding and room.
  uint64_t in_use_bytes();
  // Bytes from which requests can still be served: here, or by the driver from chunks in which
  // nothing is live. The latter count with the driver's rounding to pages. `all`: counts all freed
  // memory, not only clean memory. `parts`: clean chunks can go to the driver by themselves, so
  // their rounding counts even without `all`.
  uint64_t available_bytes(Reclaim& reclaim, bool all, bool parts);

  uint64_t largest_clean();

  // Bytes of the newest chunk; 0 if there is no chunk. Without the lock.
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
  // If true, a free makes the block clean at once if no work can touch it. Otherwise the next
  // request does.
  bool cleans_in_free_;
  uint32_t unit_ = 0;   // in granules; 0: the pool has chunks
  bool whole_ = false;  // see use_units()
  ChunkBlock* holes_ = nullptr;
  ChunkBlock* known_ = nullptr;  // BlockState::known
  Counter look_from_;            // quarantined bytes, see look_for_known()
  bool unmerged_ = false;        // something became clean since everything was merged
  uint32_t unasked_ = 0;         // blocks freed since ask_first was the answer
  ChunkMap* maps_ = nullptr;
  Counter chunks_, chunk_bytes_;
  Counter newest_bytes_;  // of the first of maps_
  Counter moving_bytes_;  // of chunk_bytes_, in BlockState::moving
  Counter room_bytes_;
  Counter idle_chunk_bytes_;
  Counter idle_rounding_;  // sum of ChunkMap::rounding of chunks with nothing live but room
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
