// SPDX-License-Identifier: Apache-2.0
// The garbage of one device: what the program freed and the settings hold back from reuse
// (FLAGS_eager_delete_tensor_gb, FLAGS_memory_fraction_of_eager_deletion). It lies in the queues of
// the device's pools, whatever context they belong to:
//
//   collected  until the bytes of the whole device reach the threshold: then a flush releases the
//              largest blocks, up to the fraction, and keeps the rest
//   kept       until the program synchronises the block's context
//
// A shortage releases both. To be released is to wait for earlier work as every freed block does
// (freed_queue.h): holding back only ever delays. Parked and quarantined memory is never garbage.
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
    at_threshold,    // collected bytes reach it
    at_synchronise,  // a threshold below 0, or a fraction of 0
  };
  When when = When::off;
  uint64_t threshold = 0;  // bytes
  double fraction = 1;     // of the collected bytes, released by a flush
};

GarbageRules garbage_rules(const config::Policy& policy);

// What a flush releases: blocks above a size, and of those of that size the oldest.
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
  // When the pool begins, empty and without its lock; nullptr: nothing is held back. `owner`: of
  // the pool's context. A pool whose context has gone stays where it is, for it is empty.
  void join(Garbage* garbage, Mutex* pool_mutex, uint32_t owner);

  // Bytes; also without the lock.
  uint64_t garbage_bytes() const {
    return until_threshold_bytes_.get() + until_synchronise_bytes_.get();
  }

 protected:
  friend class Garbage;
  using See = void (*)(void* state, uint64_t bytes, Ticket stamp);

  virtual void survey(See see, void* state) = 0;  // everything collected
  // These release, and return how many bytes.
  virtual uint64_t flush(const Cut& cut) = 0;
  virtual uint64_t flush_freed_before(Ticket freed_before) = 0;
  virtual uint64_t flush_all() = 0;
  ~GarbageQueue() = default;

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
  Ticket stamp() const;
  void flushed_one() { flushes.add(); }
  void count_until_threshold(uint64_t more, uint64_t less) { until_threshold.add(more - less); }
  void count_until_synchronise(uint64_t more, uint64_t less) { until_synchronise.add(more - less); }

  // The rest without any lock of a pool.
  bool due() const {
    return rules_.when == GarbageRules::When::at_threshold &&
           until_threshold.get() >= rules_.threshold;
  }
  // If still due: releases what the fraction says and keeps the rest.
  void flush();
  // The program waited for everything given to the context `owner` before `ticket` was closed.
  // True if that released anything.
  bool flush_synchronised(uint32_t owner, Ticket ticket);
  // Memory is short: everything is released. True if there was anything.
  bool flush_all();
  // What was released last, together: it will be wanted again before the next time.
  uint64_t flushed_together() const { return flushed_together_.get(); }

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
  Counter flushed_together_;
  Mutex mutex_;
  GarbageQueue* queues_ = nullptr;
};

}  // namespace cistern::alloc
