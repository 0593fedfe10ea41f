// SPDX-License-Identifier: Apache-2.0
// The scratch cache: stream-ordered allocations that the program freed, kept per stream on which
// they were freed, and handed out again on that same stream (FLAGS_limit_of_tmp_allocation,
// FLAGS_times_excess_than_required_tmp_allocation). Stream order makes that safe: work that used a
// block is ordered before its free, and the free before all later work on that stream.
//
// The blocks stay allocations of the driver's own stream-ordered allocator. This class is only the
// bookkeeping: which allocations are live, which are cached on which stream, and which must be
// released. The caller makes the driver's calls, without the lock: it collects blocks, calls the
// driver, and reports the outcome for each with released(). Any thread; every function takes the
// one lock, except epoch().
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/ledger.h"
#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {

// Scratch blocks of one stream by size, and by age among equal sizes. Finds the smallest block that
// is large enough, and takes any block out, in logarithmic time. A treap: a search tree by key that
// is a heap by a hash of the address, so it stays balanced without counts. The links are the
// block's own. Not thread-safe: the lock of the ScratchCache protects it.

// T has bytes, word (the ticket of its free), left, right, and a unique address().
template <typename T>
class ScratchTree {
 public:
  bool empty() const { return root_ == nullptr; }
  T* any() const { return root_; }

  void insert(T* node) {
    T** link = &root_;
    while (*link != nullptr && !above(node, *link)) {
      link = before(node, *link) ? &(*link)->left : &(*link)->right;
    }
    split(*link, node, &node->left, &node->right);
    *link = node;
  }

  // `node` is in the tree.
  void remove(T* node) {
    T** link = &root_;
    while (*link != node) link = before(node, *link) ? &(*link)->left : &(*link)->right;
    join(link, node->left, node->right);
  }

  // The smallest block of at least `bytes`; of several, the one freed first. nullptr if there is
  // none.
  T* at_least(uint64_t bytes) const {
    T* found = nullptr;
    for (T* node = root_; node != nullptr;) {
      if (node->bytes >= bytes) {
        found = node;
        node = node->left;
      } else {
        node = node->right;
      }
    }
    return found;
  }

 private:
  static bool before(const T* a, const T* b) {
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a->word != b->word) return a->word < b->word;
    return a->address() < b->address();
  }

  static bool above(const T* a, const T* b) { return rank(a) > rank(b); }
  static uint64_t rank(const T* node) { return node->address() * 0x9E3779B97F4A7C15u; }

  // What comes before `node` goes under *low, the rest under *high.
  static void split(T* tree, const T* node, T** low, T** high) {
    while (tree != nullptr) {
      if (before(tree, node)) {
        *low = tree;
        low = &tree->right;
        tree = tree->right;
      } else {
        *high = tree;
        high = &tree->left;
        tree = tree->left;
      }
    }
    *low = *high = nullptr;
  }

  // Everything in `low` comes before everything in `high`.
  static void join(T** link, T* low, T* high) {
    while (low != nullptr && high != nullptr) {
      if (above(low, high)) {
        *link = low;
        link = &low->right;
        low = low->right;
      } else {
        *link = high;
        link = &high->left;
        high = high->left;
      }
    }
    *link = low != nullptr ? low : high;
  }

  T* root_ = nullptr;
};

struct ScratchStream;

// One allocation of the driver, at most 64 bytes like all bookkeeping.
struct ScratchBlock {
  ScratchBlock* next;     // KeyedTable's
  uint64_t key;           // its address
  uint64_t bytes;         // requested from the driver
  uint64_t word;          // live: requested by the program; cached: the ticket of its free
  ScratchBlock* left;     // in the tree; in a list: the next block
  ScratchBlock* right;    // in the tree
  ScratchStream* stream;  // where it is cached; nullptr: the program holds it
  uint16_t context, device;
  bool unfit;  // its next free goes to the driver: exported, or its pool is no longer current

  uint64_t address() const { return key; }
};
static_assert(sizeof(ScratchBlock) <= 64);

struct ScratchLinks {
  static ScratchBlock*& next(ScratchBlock* block) { return block->left; }
};
using ScratchList = LinkedList<ScratchBlock, ScratchLinks>;

struct ScratchStream {
  ScratchStream* next;  // KeyedTable's
  uint64_t key;         // never used for another stream; 0: its context is gone
  uint64_t handle;
  uint16_t context, device;  // context: kNoContext if that is gone
  bool ended;                // the handle is no longer valid
  int out;                   // blocks that are being released
  Ticket ended_at;
  Ledger* ledger;
  uint64_t bytes;  // cached here
  ScratchTree<ScratchBlock> tree;
  ScratchList unserved;  // unfit blocks, and all blocks of an ended stream
};

class ScratchCache {
 public:
  static constexpr uint64_t kUnlimited = ~uint64_t{0};

  // `limit`: the most bytes cached per stream. A block of S bytes serves a request of N bytes if N
  // <= S <= times * N. With `only_clean`, only once all work enqueued before its free is done
  // (FLAGS_fast_eager_deletion_mode=false).
  void init(uint64_t limit, double times, bool only_clean, Reclaim* reclaim);

  // Adds a stream, unless it is known. False if there is no memory for bookkeeping.
  bool add_stream(uint64_t key, uint64_t handle, uint16_t context, uint16_t device, Ledger* ledger);
  // The handle is about to become invalid. Returns once no block of the stream is being released.
  // Blocks that are still cached are kept for collect_ended().
  void end_stream(uint64_t key);

  // Takes a block for `bytes` that was freed on this stream.
  enum class Took : uint8_t { hit, miss, unknown_stream };
  // *wait_for: on a miss, the newest ticket among blocks of the right size that are not clean yet,
  // or 0 if there are none. 0 on a hit.
  Took take(uint64_t key, uint64_t bytes, uint64_t* address, Ticket* wait_for);

  // Grows when a device gets another current pool: an allocation requested before that may come
  // from the old pool.
  uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  // The driver gave the program an allocation on stream `key`. `epoch`: epoch() before the driver's
  // call.
  void add(uint64_t address, uint64_t bytes, uint64_t key, uint32_t epoch);
  // The driver has handed this address out for an allocation that is never cached.
  void forget(uint64_t address);

  // The program frees on stream `key`. 0: in a way that cannot be cached.
  enum class Freed : uint8_t {
    foreign,  // not known: the driver answers
    invalid,  // the program does not hold it: the driver must not see the call
    cached,
    pass,            // release *over_limit, make the driver's call, then freed(*block)
    unknown_stream,  // add_stream() first
  };
  Freed free(uint64_t address, uint64_t key, ScratchBlock** block, ScratchList* over_limit);
  // The outcome of a free that was passed to the driver. `done` is false if the program still holds
  // the block.
  void freed(ScratchBlock* block, bool done);

  // *bytes: the requested size, if the program holds a block that starts at `address`.
  enum class Found : uint8_t { foreign, live, not_live };
  Found find(uint64_t address, uint64_t* bytes);
  // Another process gets to know the block.
  void mark_exported(uint64_t address);

  // Blocks to release. The caller calls the driver for each, and then released().
  ScratchList collect_stream(uint64_t key);
  ScratchList collect_context(uint16_t context);
  ScratchList collect_device(uint16_t device);
  // Blocks of streams that had ended when this ticket was closed. The streams are the context's, or
  // those of contexts that are gone on the device. Call it once the program has waited for the
  // context.
  ScratchList collect_ended(uint16_t context, uint16_t device, Ticket ticket);
  enum class Released : uint8_t {
    done,
    not_now,      // stays cached
    stream_gone,  // the stream turned out to have ended unseen
  };
  void released(ScratchBlock* block, Released outcome);

  // The device has another current pool. Blocks from before are neither served nor cached again.
  // Those that are cached stay until collect_device().
  void stop_serving_device(uint16_t device);

  // close(): no block is collected from the context's streams any more. When it returns, no block
  // of them is being released. This holds until reopen() was called as often as close().
  void close(uint16_t context);
  void reopen(uint16_t context);
  // The context is gone, and its streams have ended. Blocks that were still cached there belong to
  // the device, and are kept for collect_ended() in another context.
  void forget_context(uint16_t context);

  void reset_after_fork() { mutex_.reset(); }

 private:
  static constexpr uint16_t kNoContext = Reclaim::kMaxContexts;

  using BlockTable = KeyedTable<ScratchBlock, 16>;
  using StreamTable = KeyedTable<ScratchStream, 8>;

  ScratchBlock* lookup(uint64_t address) {
    return blocks_ == nullptr ? nullptr : blocks_->find(address);
  }
  void cache(ScratchBlock* block, ScratchStream* stream);
  void collect_locked(ScratchStream* stream, ScratchList* out);
  void stop_serving(ScratchStream* stream);
  void end(ScratchStream* stream);
  void forget_locked(uint64_t address);
  bool closing(const ScratchStream* stream) const { return closing_[stream->context] != 0; }
  void pause();
  void recycle_if_over(ScratchStream* stream);
  void remove(ScratchStream* stream);
  template <typename Match>
  ScratchList collect_where(Match match);

  Mutex mutex_;
  std::atomic<uint32_t> epoch_{0};
  uint64_t limit_ = 0;
  double times_ = 0;
  bool only_clean_ = false;
  Reclaim* reclaim_ = nullptr;
  int closing_[kNoContext + 1] = {};  // threads that may be ending the context
  BlockTable* blocks_ = nullptr;      // mapped with the first stream
  StreamTable streams_;
  Arena<ScratchBlock> block_records_;
  Arena<ScratchStream> stream_records_;
};

}  // namespace cistern::alloc
