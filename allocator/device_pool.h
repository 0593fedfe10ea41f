// SPDX-License-Identifier: Apache-2.0
// The pool of one context: the default strategy.
//
// Requests of 1 MiB and more keep driver allocations whole, so that NCCL, MPI and RDMA see real
// bases; smaller ones are cut from 2 MiB slabs. What is idle beyond a budget goes back to the
// driver, and everything that is not live does before memory is said to be out: the program never
// runs out where the driver alone would not have.
//
//   allocate: clean memory at hand -> else ask what became clean -> else wait for what is waiting,
//             as long as a driver call takes (longer with much memory waiting) -> else fresh memory
//             -> else return all we can and try once more
//   free:     to the waiting queue of its pool. What exceeds the idle budget goes back to the
//   driver
//             here, or after a synchronisation, never in an allocation: the driver's own free may
//             wait for the device, its allocation does not
//
// Any thread may call anything, except that drop() must be the last call for a context. Small
// blocks are sharded: threads spread over kShards independent SlabPools; a free goes to the shard
// the block came from. No lock is held while the source is called.
#pragma once

#include "allocator/cap.h"
#include "allocator/chunk_cache.h"
#include "allocator/index.h"
#include "allocator/ledger.h"
#include "allocator/reclaim.h"
#include "allocator/slab_pool.h"
#include "allocator/source.h"

namespace cistern::alloc {

inline constexpr uint64_t kWholeBytes = uint64_t{1} << 20;

// What all pools of the process share.
struct Shared {
  Index index;
  Reclaim reclaim;
  Arena<Chunk> chunks;
  SlabArena slabs;
  std::atomic<int> returning{0};  // threads that are giving chunks back to the driver
};

// Where the memory of a pool is; parts may be a moment apart.
struct Usage {
  uint64_t live, idle, waiting, parked;
};

enum class Freed : uint8_t {
  foreign,  // not ours: the driver's to answer
  done,
  invalid,  // ours, but not the start of something the program holds
};

class DevicePool {
 public:
  static constexpr int kShards = 8;

  // `owner` is the number find() users get back through Chunk::owner.
  void init(Shared* shared, MemorySource* source, Ledger* ledger, Cap* cap, uint32_t owner);

  // Memory for `bytes` > 0; a result code of the source. `shard` < kShards: the caller's thread.
  int allocate(uint64_t bytes, unsigned shard, uint64_t* address);

  // The driver's own answer, counted but never pooled (while a capture is in progress); only where
  // the driver has no memory left, what is clean here.
  int allocate_direct(uint64_t bytes, unsigned shard, uint64_t* address);

  // `chunk` is what the index found for `address`. `code` is the source's result where the chunk
  // really went back, else kSuccess.
  Freed free(Chunk* chunk, uint64_t address, int* code);

  // The block the program holds around `address`: start and the size it asked for.
  bool find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes);

  // The driver allocation at `address` becomes known outside the process. False when it is not one
  // that the program holds whole.
  bool mark_exported(Chunk* chunk, uint64_t address);

  // Gives back what exceeds the idle budget; for a moment at which the driver will not wait.
  void trim();

  // Gives back everything the program does not hold; false if that was nothing. For a shortage.
  bool return_everything();

  // The context is gone and its memory with it: forgets everything without a call to the source.
  void drop();

  Usage usage() const;
  // Of what the program does not hold, the part that could go back to the driver.
  uint64_t returnable_bytes() const;
  uint64_t largest_free();
  uint64_t allocations() const;
  uint64_t frees() const;
  // Bytes of small blocks that the Ledger does not know yet (it may also know too many).
  int64_t unpublished_live() const;
  void reset_after_fork();

 private:
  struct Request {
    uint64_t bytes;
    unsigned shard;
    uint64_t address;
    bool small() const { return bytes < kWholeBytes; }
  };

  // allocate, step by step (device_pool.cc)
  bool take_clean(Request& request);
  int miss(Request& request);
  bool ask_for_clean();
  bool wait_for_clean(uint64_t limit_ns);
  bool wait_as_long_as_obtain(Request& request);
  int take_fresh(Request& request);
  int shortage(Request& request);
  bool squeeze_in(Request& request);
  bool search_everywhere(Request& request);

  Freed free_whole(Chunk* chunk, uint64_t address, int* code);

  // chunks coming and going (device_pool_chunks.cc)
  Chunk* obtain(uint64_t bytes, Role role, int* code);
  bool add_slab(Chunk* chunk, unsigned shard);
  void keep_empty(ChunkList* emptied);
  int release_for_program(Chunk* chunk, uint64_t requested);
  void give_back_all(ChunkList* chunks);
  void forget(Chunk* chunk);
  uint64_t idle_budget() const;
  bool over_budget() const;

  bool waiting_range(Ticket* oldest, Ticket* newest);
  uint64_t waiting_bytes() const;
  void count_whole(uint64_t bytes);

  Shared* shared_;
  MemorySource* source_;
  Ledger* ledger_;
  Cap* cap_;
  uint32_t owner_;
  Counter obtain_ns_;  // what a driver allocation takes lately
  Counter whole_live_, whole_allocations_, whole_frees_, reserved_;  // of this context
  ChunkCache cache_;
  SlabPool slabs_[kShards];
};

}  // namespace cistern::alloc
