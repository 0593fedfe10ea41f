// SPDX-License-Identifier: Apache-2.0
// Where memory comes from, and how the pools learn what work the device has finished: the seam
// between the pools and CUDA. The shim implements it with the driver (shim/order/cuda_source.h);
// tests and benchmarks with plain host memory. Any thread may call any function, except that only
// one thread at a time calls mark(), query() and forget() (reclaim.h). Every call may reach the
// driver and block, so no lock of ours is held around one.
#pragma once

#include <cstdint>

#include "allocator/base/ledger.h"

namespace cistern::alloc {

// How the driver rounds allocations. The pools follow it, so that they never take more of the
// device than the driver alone would: large allocations take whole pages of 2 MiB, smaller ones
// share such pages in granules of 512 bytes.
inline constexpr uint64_t kDriverPage = uint64_t{2} << 20;
inline constexpr uint64_t kDriverSharesBelow = uint64_t{1} << 20;
inline constexpr uint64_t kDriverGranule = 512;

constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Result codes are the source's own and travel to the program unchanged (for CUDA: CUresult). Only
// these mean something to the pools; the numbers are CUDA's.
inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 2;
// The pool's own answer once its context is gone. CUDA's number too.
inline constexpr int kContextGone = 709;
// From release(): the memory is still allocated, so the chunk stays with the pool, because a
// capture is in progress or the driver refused. After any other code of release() the memory is
// gone. From fill(): a capture is in progress. Not a CUDA code.
inline constexpr int kNotNow = -1;

// A point in a context's work (for CUDA: an event recorded for the whole context).
using Mark = uint64_t;
enum class MarkState : uint8_t { passed, pending, failed };

struct FillRange {
  uint64_t address, bytes;
};

// The program's own call that frees memory in the order of a stream; a result code of the source.
class OrderedFree {
 public:
  virtual int free(uint64_t address) const = 0;

 protected:
  ~OrderedFree() = default;
};

// A physical allocation of UnitSource::unit_bytes(). 0: none.
using Unit = uint64_t;

// Physical memory apart from addresses, for the expandable pool: where units come from, and how
// they get addresses. For CUDA: the virtual memory management calls (CUDA Driver API, "Virtual
// Memory Management"); none of them is ordered by streams. What is unmapped must be clean
// (allocator/reclaim/reclaim.h): neither earlier work nor a peer's may touch it any more. No call
// needs a live context: units and ranges outlive it, and are given back after its end.
class UnitSource {
 public:
  // The size of every unit in bytes, and the alignment of ranges: a power of two, 2 MiB or more. 0
  // if the device has no such memory.
  virtual uint64_t unit_bytes() = 0;

  // Reserves a range of addresses, aligned to a unit, with no memory behind it.
  virtual int reserve_addresses(uint64_t bytes, uint64_t* address) = 0;
  // Frees the range. Nothing may be mapped in it.
  virtual void free_addresses(uint64_t address, uint64_t bytes) = 0;

  // An upper limit on the units that create() can give now, as far as the device knows.
  virtual uint64_t most_units() { return UINT64_MAX; }

  // Never returns kNotNow: if a capture forbids the call, the program gets the driver's code, as
  // with MemorySource::obtain().
  virtual int create(Unit* unit) = 0;
  // The unit must not be mapped anywhere.
  virtual void release(Unit unit) = 0;

  // Maps the units side by side from `address` on, with access for the device and for its peers.
  // Maps all of them or none.
  virtual int map(uint64_t address, const Unit* units, uint32_t count) = 0;
  // Unmaps the `count` units from `address` on. kNotNow during a capture. Any failure leaves all of
  // them mapped.
  virtual int unmap(uint64_t address, uint32_t count) = 0;
  // As unmap(), for `bytes` of a context that is gone, even if another context has taken its place.
  // Works in a capture too.
  virtual int unmap_of_gone(uint64_t address, uint64_t bytes) = 0;

 protected:
  ~UnitSource() = default;
};

class MemorySource {
 public:
  virtual int obtain(uint64_t bytes, uint64_t* address) = 0;

  // The program itself frees this memory: the call always reaches the driver. If `ordered` is not
  // nullptr, it makes the call, which waits for no work.
  virtual int release_for_program(uint64_t address, const OrderedFree* ordered) = 0;
  // The pool does not need this memory any more; kNotNow while its release could disturb the
  // program.
  virtual int release(uint64_t address) = 0;

  // Units and addresses of the same device, for the expandable pool; nullptr if the device has
  // none.
  virtual UnitSource* units() { return nullptr; }

  // True if release() would return kNotNow now.
  virtual bool refuses_release() { return false; }

  // As release(), but for memory that no earlier work can touch, and without a wait for the device.
  // Call it only if can_release_clean(). It may still return kNotNow.
  virtual bool can_release_clean() { return false; }
  virtual int release_clean(uint64_t /*address*/, uint64_t /*bytes*/) { return kNotNow; }

  // A free may hand its memory out before earlier work is done. Until later work is ordered behind
  // that work, the source owes this order. True if no order is owed for the memory that is out of
  // the pools now. With `waits`, waits until none is.
  virtual bool pays_what_it_owes(bool /*waits*/) { return true; }

  // Whether release_clean() was not tried yet, so can_release_clean() is only a guess.
  virtual bool release_clean_untried() { return false; }
  // Whether the pools may count on release_clean(): it has worked, or can be expected to.
  virtual bool release_clean_trusted() { return can_release_clean() && !release_clean_untried(); }
  // unsettled(): whether memory that release_clean() took may be free in the driver only once no
  // work is going on. settle_clean_releases() makes it free. Call it only when no work is going on,
  // because it waits for all work. False if it settled nothing.
  virtual bool unsettled() { return false; }
  virtual bool settle_clean_releases() { return false; }

  // Asks that the background thread call ContextPool::work_in_background() from time to time,
  // because some memory becomes idle; or `soon`, because work of a free was deferred. False if
  // there is no such thread.
  virtual bool request_background_work(bool soon) { return false; }

  // Writes the fill byte over the ranges, and waits until every stream will see it, but not for
  // work of the program. Only the caller may use the ranges, and no earlier work can. kNotNow
  // during a capture. After any other failure the ranges may hold anything.
  virtual int fill(const FillRange*, int /*count*/) { return kNotNow; }

  // Memory is short: the other pools of the same device release what they do not need. True if
  // something went. A source that knows no other pools does nothing.
  virtual bool release_from_other_pools() { return false; }

  // Whether this run of a graph has not ended yet. Called when a run first allocates, and, unlike
  // all other functions, under a lock: it must neither block nor call the driver.
  virtual bool graph_is_open(uint32_t /*run*/) { return false; }
  // A run found another one open, and got an arena of its own (allocator/graph_arena).
  virtual void graphs_overlap() {}

  // A plan of `bytes` for `requests` requests was made while the program runs. Only for logging.
  virtual void plan_made(uint64_t /*bytes*/, uint64_t /*requests*/) {}

  // A request of `bytes` met a shortage, and this step ended it. Only for logging.
  virtual void shortage_ended(Step step, uint64_t bytes) {}

  // Marks all work handed to the context before the call. False if it cannot be marked now: a
  // capture is in progress, the context is gone, or some of its work is unknown.
  // At most kMostMarks are outstanding at a time.
  static constexpr int kMostMarks = 64;
  virtual bool mark(Mark* out) = 0;
  // False if nothing can be marked before the program synchronises the whole context (or ever), and
  // no thread of the program is doing so now.
  virtual bool marks_may_come() { return true; }
  // True if the context may be ending: then no mark of it will pass any more.
  virtual bool ending() { return false; }
  // How long a request that is out of memory waits for work before it treats the work as endless.
  virtual uint64_t patience_ns() { return 60'000'000'000; }
  // All memory of the device (or the cap), in bytes; 0 if not known.
  virtual uint64_t memory_bytes() { return 0; }
  // Whether mark() works in any call, and not only in frees and allocations.
  virtual bool marks_anywhere() { return true; }
  // Checks whether the work that ties this context to others is done. If so, calls
  // Reclaim::copies_done(). Any thread.
  virtual void look_at_ties() {}
  virtual MarkState query(Mark mark) = 0;
  virtual void forget(Mark mark) = 0;

 protected:
  ~MemorySource() = default;
};

}  // namespace cistern::alloc
