// SPDX-License-Identifier: Apache-2.0
// The garbage of one device: freed memory whose reuse two settings delay
// (FLAGS_eager_delete_tensor_gb, FLAGS_memory_fraction_of_eager_deletion). It is in the queues of
// all the device's pools (freed_queue.h), in all contexts:
//
//   until_threshold    until such garbage of the whole device reaches the threshold: the largest
//                      blocks are flushed then, up to the fraction; the rest moves to the next line
//   until_synchronise  until the program synchronises the block's context
//
// A shortage flushes both. A flushed block waits for earlier work like every freed block: the
// settings only delay reuse. Parked and quarantined memory is never garbage.
//
// Any thread. The lock of the garbage is taken before those of its pools, one of them at a time,
// and never by a thread that holds one. Nothing here calls the source.
#pragma once

#include "allocator/base/ledger.h"
#include "allocator/base/mutex.h"
#include "allocator/base/ticket.h"
#include "config/policy.h"

namespace cistern::alloc {

class Garbage;
class Reclaim;

struct GarbageRules {
  enum class When : uint8_t {
    off,             // neither setting is set
    at_each_free,    // a threshold of 0
    at_threshold,    // the garbage of the device reaches it
    at_synchronise,  // a threshold below 0, or a fraction of 0
  };
  When when = When::off;
  uint64_t threshold = 0;  // bytes
  double fraction = 1;     // of that garbage, which is flushed then
};

GarbageRules garbage_rules(const config::Policy& policy);

// What is flushed at the threshold: blocks above a size, and of those of that size the oldest.
struct Cut {
  uint64_t bytes = 0;  // as it stands: everything
  Ticket newest = 0;
  bool includes(uint64_t size, Ticket stamp) const {
    return size > bytes || (size == bytes && stamp <= newest);
  }
};

// The garbage of one pool. The functions for Garbage take the pool's lock.
class GarbageQueue {
 public:
  // When the pool begins, empty and without its lock; nullptr: nothing is kept back. `owner`: of
  // the pool's context. A pool whose context has gone stays where it is, for it is empty.
  void join(Garbage* garbage, Mutex* pool_mutex, uint32_t owner);

  // Bytes; also without the lock.
  uint64_t garbage_bytes() const {
    return until_threshold_bytes_.get() + until_synchronise_bytes_.get();
  }

 protected:
  friend class Garbage;
  using See = void (*)(void* state, uint64_t bytes, Ticket stamp);

  virtual void survey(See see, void* state) = 0;  // everything until_threshold
  virtual void flush(const Cut& cut) = 0;
  // How many bytes wait from now on.
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

  // For the queues, under their pool's lock: what becomes of a block freed now, with which stamp,
  // and bytes that came or went.
  GarbageRules::When when() const { return rules_.when; }
  Ticket stamp(uint32_t context) const;
  void flushed_one() { flushes.add(); }
  void count_until_threshold(uint64_t more, uint64_t less) { until_threshold.add(more - less); }
  void count_until_synchronise(uint64_t more, uint64_t less) { until_synchronise.add(more - less); }

  // The rest without any lock of a pool.
  bool due() const {
    return rules_.when == GarbageRules::When::at_threshold &&
           until_threshold.get() >= rules_.threshold;
  }
  // If still due: flushes what the fraction says; the rest is kept until_synchronise.
  void flush();
  // The program waited for everything given to the context `owner` before `ticket` was closed.
  // True if that flushed anything.
  bool flush_synchronised(uint32_t owner, Ticket ticket);
  // Memory is short: everything is flushed. True if there was anything.
  bool flush_all();

  void reset_after_fork() { mutex_.reset(); }

  // Bytes, but for the first.
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
