// SPDX-License-Identifier: Apache-2.0
// Where chunks come from, and how the pools learn what work the device has finished: the seam
// between the pools and CUDA. The shim implements it with the driver (shim/order/cuda_source.h);
// tests and benchmarks with plain host memory. Any thread may call anything but mark(), query() and
// forget(), which one thread at a time calls (reclaim.h). Every call may reach the driver and
// block, so no lock of ours is held around one.
#pragma once

#include <cstdint>

#include "allocator/base/ledger.h"
#include "allocator/base/unit_source.h"

namespace cistern::alloc {

// Result codes are the source's own and travel to the program unchanged (for CUDA: CUresult). Only
// these mean something to the pools; the numbers are CUDA's.
inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 2;
// What a pool itself answers once its context is gone. CUDA's, too.
inline constexpr int kContextGone = 709;
// From release(): the memory is still allocated, so the chunk stays with the pool (a capture is in
// progress, or the driver refused); any other code says that it is there no more. From fill(): a
// capture is in progress. No CUDA code.
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

class MemorySource {
 public:
  virtual int obtain(uint64_t bytes, uint64_t* address) = 0;

  // The program itself frees this memory: the call always reaches the driver. By `ordered`, where
  // that is not nullptr: it waits for no work.
  virtual int release_for_program(uint64_t address, const OrderedFree* ordered) = 0;
  // The pool does not need this memory any more; kNotNow while its release could disturb the
  // program.
  virtual int release(uint64_t address) = 0;

  // Units and addresses of the same device, for the expandable pool; nullptr where there are none.
  virtual UnitSource* units() { return nullptr; }

  // Whether release() need not be tried now: it would be kNotNow.
  virtual bool refuses_release() { return false; }

  // As release(), of memory that no earlier work can touch, and without a wait for what the device
  // does. Only where can_release_clean() says so; the answer may still be kNotNow.
  virtual bool can_release_clean() { return false; }
  virtual int release_clean(uint64_t /*address*/, uint64_t /*bytes*/) { return kNotNow; }

  // A free may have handed its memory out before earlier work was done, and owe that order. Whether
  // none is owed for what is out of the pools now; where `waits`, waits for that.
  virtual bool pays_what_it_owes(bool /*waits*/) { return true; }

  // Whether release_clean() was not tried yet, so that can_release_clean() is but a guess.
  virtual bool release_clean_untried() { return false; }
  // Whether release_clean() is counted on: it was seen to help, or may be expected to.
  virtual bool release_clean_trusted() { return can_release_clean() && !release_clean_untried(); }
  // Whether something that release_clean() took may not be the driver's before no work goes on; and
  // makes sure of it: waits for all work, of which there must be none. False where there was
  // nothing.
  virtual bool unsettled() { return false; }
  virtual bool settle_clean_releases() { return false; }

  // Some memory of this source becomes idle, or (`soon`) work of a free was deferred: asks that
  // somebody calls ContextPool::work_in_background() from time to time, or soon. False when nobody
  // will.
  virtual bool request_background_work(bool soon) { return false; }

  // Writes the fill byte over the ranges and waits until it is there, for every stream to find, but
  // for no work of the program's. The caller alone may use the ranges, and no earlier work can.
  // kNotNow during a capture; any other code: they may hold anything.
  virtual int fill(const FillRange*, int /*count*/) { return kNotNow; }

  // Memory is out: the other pools of the same device release what they do not need; true if that
  // was anything. A source that knows no others does nothing.
  virtual bool release_from_other_pools() { return false; }

  // Whether this run of a graph has not ended yet. Asked where a run allocates for the first time,
  // unlike all others under a lock: it answers from what it knows.
  virtual bool graph_is_open(uint32_t /*run*/) { return false; }
  // A run found another one open, and got an arena of its own (allocator/graph_arena).
  virtual void graphs_overlap() {}

  // A plan of so many bytes was made of the program's requests. Only for logging.
  virtual void plan_made(uint64_t /*bytes*/, uint64_t /*requests*/) {}

  // A request of `bytes` met a shortage, and this step ended it. Only for logging.
  virtual void shortage_ended(Step step, uint64_t bytes) {}

  // Marks all work handed to the context before the call. False when it cannot be marked now (a
  // capture is in progress, the context is gone, some of its work cannot be found).
  // At most kMostMarks are outstanding at a time.
  static constexpr int kMostMarks = 64;
  virtual bool mark(Mark* out) = 0;
  // False where nothing can be marked unless the program synchronises the whole context first, if
  // that helps at all, and none of its threads is doing so.
  virtual bool marks_may_come() { return true; }
  // The context may be ending: none of its marks is answered any more.
  virtual bool ending() { return false; }
  // How long work may take until it is taken for endless, where memory is out before it ends.
  virtual uint64_t patience_ns() { return 60'000'000'000; }
  // What there is in all, in bytes; 0: not known.
  virtual uint64_t memory_bytes() { return 0; }
  // Whether it can be marked anywhere, and not only in frees and allocations.
  virtual bool marks_anywhere() { return true; }
  // Work that ties the context to others may be done: Reclaim::copies_done(), if so. Any thread.
  virtual void look_at_ties() {}
  virtual MarkState query(Mark mark) = 0;
  virtual void forget(Mark mark) = 0;

 protected:
  ~MemorySource() = default;
};

}  // namespace cistern::alloc
