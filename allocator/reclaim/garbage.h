// SPDX-License-Identifier: Apache-2.0
// The garbage of one device: freed memory whose reuse two settings delay
// (FLAGS_eager_delete_tensor_gb, FLAGS_memory_fraction_of_eager_deletion). It is in the queues of
// all the device's pools (freed_queue.h), in all contexts:
//
//   until_threshold    kept until such garbage of the whole device reaches the threshold. Then the
//                      largest blocks are flushed, up to the fraction; the rest moves to the next
//                      line
//   until_synchronise  kept until the program synchronises the block's context
//
// A shortage flushes both. A flushed block waits for earlier work like every freed block: the
// settings only delay reuse. Parked and quarantined memory is never garbage.
//
// Any thread. The garbage's lock is taken before the lock of a pool, and never by a thread that
// holds a pool's lock. It takes the pools' locks one at a time. Nothing here calls the source.
#pragma once

#include "allocator/base/ledger.h"
#include "allocator/base/threads.h"
#include "allocator/reclaim/tickets.h"
#include "config/policy.h"

namespace cistern::alloc {

class Garbage;
class Reclaim;

struct GarbageRules {
  enum class When : uint8_t {
    off,             // neither setting is set
    at_each_free,    // a threshold of 0
    at_threshold,    // when the garbage of the device reaches the threshold
    at_synchronise,  // a threshold below 0, or a fraction of 0
  };
  When when = When::off;
  uint64_t threshold = 0;  // bytes
  double fraction = 1;     // the part of the garbage that is flushed at the threshold
};

GarbageRules garbage_rules(const config::Policy& policy);

// What is flushed at the threshold: blocks larger than a size, and the oldest blocks of exactly
// that size.
struct Cut {
  uint64_t bytes = 0;  // the size; 0: flush everything
  Ticket newest = 0;
  bool includes(uint64_t size, Ticket stamp) const {
    return size > bytes || (size == bytes && stamp <= newest);
  }
};

// The garbage of one pool. The functions for Garbage take the pool's lock.
class GarbageQueue {
 public:
  // Call it when the pool begins, while it is empty, without its lock. nullptr: the pool keeps no
  // garbage. `owner`: the number of the pool's context. The pool of a context that has gone stays
  // registered, since it is empty.
  void join(Garbage* garbage, Mutex* pool_mutex, uint32_t owner);

  // In bytes. May be read without the lock.
  uint64_t garbage_bytes() const {
    return until_threshold_bytes_.get() + until_synchronise_bytes_.get();
  }

 protected:
  friend class Garbage;
  using See = void (*)(void* state, uint64_t bytes, Ticket stamp);

  virtual void survey(See see, void* state) = 0;  // see() for each block until_threshold
  virtual void flush(const Cut& cut) = 0;
  // Both return the bytes that begin to wait.
  virtual uint64_t flush_freed_before(Ticket freed_before) = 0;
  virtual uint64_t flush_all() = 0;
  ~GarbageQueue() = default;

  uint32_t owner() const { return owner_; }

  Garbage* garbage_ = nullptr;
  Mutex* pool_mutex_ = nullptr;
  Counter until_threshold_bytes_, until_synchronise_bytes_;  // written under the pool's lock

 private:
  void leave();

  GarbageQueue* next_ = nullptr;  // of the same garbage
  uint32_t owner_ = 0;
};

class Garbage {
 public:
  // Before the first pool joins.
  void init(const GarbageRules& rules, Reclaim* reclaim);
  bool on() const { return rules_.when != GarbageRules::When::off; }

  // For the queues, under their pool's lock: when() a block that is freed now is flushed, its
  // stamp, and the counts.
  GarbageRules::When when() const { return rules_.when; }
  Ticket stamp(uint32_t context) const;
  void flushed_one() { flushes.add(); }
  void count_until_threshold(uint64_t more, uint64_t less) { until_threshold.add(more - less); }
  void count_until_synchronise(uint64_t more, uint64_t less) { until_synchronise.add(more - less); }

  // Call the rest without a pool's lock.
  bool due() const {
    return rules_.when == GarbageRules::When::at_threshold &&
           until_threshold.get() >= rules_.threshold;
  }
  // If still due: flushes the fraction, and keeps the rest until_synchronise.
  void flush();
  // The program waited for everything given to the context `owner` before `ticket` was closed.
  // True if that flushed anything.
  bool flush_synchronised(uint32_t owner, Ticket ticket);
  // Memory is short: flushes everything. True if there was anything.
  bool flush_all();

  void reset_after_fork() { mutex_.reset(); }

  // In bytes, except `flushes`.
  Counter flushes, until_threshold, until_synchronise, flushed_when_short;

 private:
  friend class GarbageQueue;
  template <typename Visitor>
  void for_each_queue(Visitor visit);
  template <typename See>
  void survey(See see);
  Cut find_cut();

  GarbageRules rules_;
  Reclaim* reclaim_ = nullptr;
  Mutex mutex_;
  GarbageQueue* queues_ = nullptr;
};

}  // namespace cistern::alloc
