// SPDX-License-Identifier: Apache-2.0
// The scratch cache: stream-ordered allocations that the program freed, kept per stream on which
// they were freed, and handed out again on that same stream (FLAGS_limit_of_tmp_allocation,
// FLAGS_times_excess_than_required_tmp_allocation). Stream order makes that safe: whatever used a
// block before is ordered before its free, and the free before everything later on that stream.
//
// The blocks stay allocations of the driver's own stream-ordered allocator. This is the bookkeeping
// only: which allocations are live, which are cached and where, and what has to be released. The
// caller makes the driver's calls, outside the lock: it collects blocks, asks the driver, and says
// of each by released() how that ended. Any thread; every function takes the one lock, except
// epoch().
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/arena.h"
#include "allocator/base/keyed_table.h"
#include "allocator/base/ledger.h"
#include "allocator/base/linked_list.h"
#include "allocator/base/mutex.h"
#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {

// Scratch blocks of one stream in order of size, equal ones oldest first: finds the smallest that
// is large enough, and takes any block out, in logarithmic time. A treap: a search tree by key that
// is a heap by a hash of the address, so it stays balanced without counts. The links are the
// block's own. Not thread-safe: the lock of the ScratchCache protects it.

// T has bytes, word (the ticket of its free), left, right and address(), which no other has.
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

  // The smallest of at least `bytes`, of several the one freed first; nullptr if there is none.
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
  uint64_t bytes;         // what the driver was asked for
  uint64_t word;          // live: what the program asked for; cached: the ticket of its free
  ScratchBlock* left;     // in the tree; in a list, the next
  ScratchBlock* right;    // in the tree
  ScratchStream* stream;  // where it is cached; nullptr: the program holds it
  uint16_t context, device;
  bool unfit;  // its next free is a real one: it was exported, or its pool is no longer current

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
  bool ended;                // the handle means nothing any more
  int out;                   // blocks that somebody is releasing
  Ticket ended_at;
  Ledger* ledger;
  uint64_t bytes;  // cached here
  ScratchTree<ScratchBlock> tree;
  ScratchList unserved;  // unfit ones, and all of a stream that ended
};

class ScratchCache {
 public:
  static constexpr uint64_t kUnlimited = ~uint64_t{0};

  // `limit`: most bytes cached per stream. A block of S bytes serves a request of N where
  // N <= S <= times * N; with `only_clean` only once all work enqueued before its free is done
  // (FLAGS_fast_eager_deletion_mode=false).
  void init(uint64_t limit, double times, bool only_clean, Reclaim* reclaim);

  // A stream is made known once; false when no memory is left for that.
  bool add_stream(uint64_t key, uint64_t handle, uint16_t context, uint16_t device, Ledger* ledger);
  // The handle is about to become invalid. Returns when nobody uses it here any more. What is still
  // cached is kept for collect_ended().
  void end_stream(uint64_t key);

  // A block for `bytes` that was freed on this stream.
  enum class Took : uint8_t { hit, miss, unknown_stream };
  // *wait_for: on a miss, the newest ticket among blocks of the right size that are not clean yet;
  // 0 if there are none, and on a hit.
  Took take(uint64_t key, uint64_t bytes, uint64_t* address, Ticket* wait_for);

  // Moves when pools change: what the driver was asked for before that may be of the old pool.
  uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  // The driver gave the program an allocation; epoch() was `epoch` before.
  void add(uint64_t address, uint64_t bytes, uint64_t key, uint32_t epoch);
  // The driver gave this address out for something that is never cached.
  void forget(uint64_t address);

  // The program frees on stream `key`, or (0) in a way that cannot be cached.
  enum class Freed : uint8_t {
    foreign,  // not known: the driver's to answer
    invalid,  // the program does not hold it: the driver must not see it
    cached,
    pass,            // to the driver, and then freed(*block); *over_limit goes back first
    unknown_stream,  // add_stream() first
  };
  Freed free(uint64_t address, uint64_t key, ScratchBlock** block, ScratchList* over_limit);
  // What the driver made of a free that was passed on: false, and the program still holds it.
  void freed(ScratchBlock* block, bool done);

  // What the program asked for, if it holds a block that starts at `address`.
  enum class Found : uint8_t { foreign, live, not_live };
  Found find(uint64_t address, uint64_t* bytes);
  // Another process gets to know the block.
  void mark_exported(uint64_t address);

  // To be released: the caller asks the driver about each block and then says so by released().
  ScratchList collect_stream(uint64_t key);
  ScratchList collect_context(uint16_t context);
  ScratchList collect_device(uint16_t device);
  // Of streams of the context, or of none on the device, that had ended when this ticket was
  // closed: the context has since been waited for.
  ScratchList collect_ended(uint16_t context, uint16_t device, Ticket ticket);
  enum class Released : uint8_t {
    done,
    not_now,      // stays cached
    stream_gone,  // the stream turned out to have ended unseen
  };
  void released(ScratchBlock* block, Released outcome);

  // The device has another current pool: nothing from before is served or cached again. What is
  // cached waits for collect_device().
  void stop_serving_device(uint16_t device);

  // Nothing is taken out of a context's streams any more, and nobody uses them when this returns;
  // until as many threads reopened it as closed it.
  void close(uint16_t context);
  void reopen(uint16_t context);
  // The context is gone, its streams have ended. What was still cached there is the device's, and
  // kept for collect_ended() in another context.
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
