// SPDX-License-Identifier: Apache-2.0
#include "shim/order/submissions.h"

#include <cstring>

#include "allocator/base/threads.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/captures/graphs.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/pinned_pools.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/order/ties.h"
#include "shim/process/settings.h"

namespace cistern::shim {

constinit std::atomic<uintptr_t> last_submitter{0};
constinit std::atomic<uintptr_t> quiet_submitter{4};

namespace {

constinit alloc::Mutex mutex;  // held while records of unfinished work change
constinit std::atomic<uintptr_t> times_cleared{0};

// Values of quiet_submitter for no thread: neither a thread's address nor kSeveral.
static_assert(alignof(Thread) >= 8);
constexpr uintptr_t nobody(uintptr_t time) { return time << 3 | 4; }

// The state that all contexts have in common: another submission with this state has nothing to
// note.
uintptr_t known_of_all() {
  uintptr_t known = Unfinished::kSeveral, visible = Unfinished::kVisible;
  for_each_context([&](const Context& context) {
    const uintptr_t state = context.unfinished.state();
    if (state == Unfinished::kSeveral) return;
    known = state & ~Unfinished::kVisible;
    visible &= state;
  });
  return known == Unfinished::kSeveral ? known : known | visible;
}

// Caller holds the lock.
void look_if_quiet(ThreadId thread) {
  uintptr_t before = quiet_submitter.load(std::memory_order_seq_cst);
  const uintptr_t last = last_submitter.load(std::memory_order_seq_cst);
  const bool by_all = last == Unfinished::kSeveral;
  if (!by_all && (last & ~Unfinished::kVisible) != thread) return;
  if (contexts_seen_empty.load(std::memory_order_seq_cst) != 0 || any_debts()) return;
  if (!by_all && may_be_visible()) return;
  quiet_submitter.compare_exchange_strong(before, by_all ? last : thread,
                                          std::memory_order_seq_cst);
}

}  // namespace

void submissions_are_not_quiet() {
  quiet_submitter.store(nobody(times_cleared.fetch_add(1) + 1), std::memory_order_seq_cst);
}

// To find the context would cost each submission a driver call, so the state changes in all
// contexts.
void note_first_submission(bool visible) {
  if (!active()) return;
  current_context();  // notices a context whose creation no hook saw
  const ThreadId thread = this_thread_id();
  const alloc::LockGuard guard(mutex);
  last_submitter.store(0, std::memory_order_seq_cst);  // none is known while the states change
  end_seen_empty([=](Context& context, bool was_empty) {
    was_empty ? context.unfinished.begin(thread, visible) : context.unfinished.add(thread, visible);
  });
  last_submitter.store(
      policy().free_sync == config::FreeSync::kFalse ? Unfinished::kSeveral : known_of_all(),
      std::memory_order_seq_cst);
  look_if_quiet(thread);
}

// Takes the lock, because the value speaks for all threads: another thread may begin work
// meanwhile.
void quieten() {
  const ThreadId thread = this_thread_id();
  const uintptr_t last = last_submitter.load(std::memory_order_relaxed);
  const bool by_all = last == Unfinished::kSeveral;
  if (any_debts() || (!by_all && (last & ~Unfinished::kVisible) != thread)) return;
  const alloc::LockGuard guard(mutex);
  look_if_quiet(thread);
}

void next_submission_looks() {
  const alloc::LockGuard guard(mutex);
  last_submitter.store(0, std::memory_order_seq_cst);
  submissions_are_not_quiet();
}

void forget_submitters() {
  const alloc::LockGuard guard(mutex);
  for_each_context([](Context& context) { context.unfinished.reset(); });
  last_submitter.store(0, std::memory_order_seq_cst);
  submissions_are_not_quiet();
}

void reset_submissions_after_fork() { mutex.reset(); }

// The flag stays set while threads are in here, so that none of them passes before the marks are
// made. A free after the last look at its context finds the flag set, or is seen by the look after
// the flag was cleared.
void mark_frees_before_submission(bool may_wait_for_host) {
  if (!active()) return;
  // A careful process marks nothing any more, and no memory becomes clean. Another free sets the
  // flag again.
  if (careful()) return shared().reclaim.set_any_unmarked(false);
  current_context();  // notices a context whose creation no hook saw
  bool left = false;
  for_each_context([&](Context& context) {
    const Visit visit(context);
    if (visit.open()) left |= context.pool.before_submission(may_wait_for_host);
  });
  if (pinned_frees_unmarked()) {
    for_each_pinned_pool([&](PinnedPool& pinned) {
      const PinnedVisit visit(pinned);
      if (visit.open()) left |= pinned.pool.before_submission(may_wait_for_host);
    });
  }
  if (left) return;
  alloc::Reclaim& reclaim = shared().reclaim;
  reclaim.set_any_unmarked(false);
  for_each_context([&](const Context& context) {
    if (reclaim.unmarked(context.number)) reclaim.set_any_unmarked(true);
  });
  if (pinned_frees_unmarked()) reclaim.set_any_unmarked(true);
}

// --- participants ---

namespace {

// The first byte of a box in pitched memory.
CUdeviceptr first_byte(CUdeviceptr base, size_t x, size_t y, size_t pitch, size_t z = 0,
                       size_t height = 0) {
  return base + x + pitch * (y + height * z);
}

CUdeviceptr address_of(CUmemorytype type, CUdeviceptr device, const void* host) {
  if (type == CU_MEMORYTYPE_ARRAY) return 0;
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
}

// Read as a type of our own, since the enumeration of an older header cannot hold some values.
CisternAtomicReduction as_reduction(const CUstreamBatchMemOpParams& operation) {
  CisternAtomicReduction reduction;
  static_assert(sizeof reduction <= sizeof operation);
  memcpy(&reduction, &operation, sizeof reduction);
  return reduction;
}

}  // namespace

// An unknown context may be any context.
void Participants::add_context(CUcontext handle) {
  if (const Context* context = working_context(handle)) {
    contexts_.add(context->number);
  } else if (handle != nullptr && in_crowd(handle)) {
    contexts_.add(kCrowd);
  } else if (handle != nullptr) {
    contexts_.add(living_contexts());
  }
}

void Participants::worker(CUstream stream) {
  add_context(stream == nullptr ? current_handle() : context_of_stream(stream));
}

void Participants::worker_of_stream(CUstream stream) {
  stream_ = stream;
  has_stream_ = true;
  worker(stream);
}

void Participants::add(CUdeviceptr address) {
  const alloc::Chunk* chunk = address == 0 ? nullptr : shared().index.find(address);
  if (chunk != nullptr) contexts_.add(chunk->at().owner());
}

void Participants::add(CUgraphExec exec) { contexts_.add(contexts_of(exec)); }

void Participants::add(const CUdeviceptr* addresses) {
  for (size_t i = 0; addresses != nullptr && i < count_; ++i) add(addresses[i]);
}

void Participants::add(const CUDA_MEMCPY2D* copy) {
  const CUDA_MEMCPY2D& c = *copy;
  add(first_byte(address_of(c.srcMemoryType, c.srcDevice, c.srcHost), c.srcXInBytes, c.srcY,
                 c.srcPitch));
  add(first_byte(address_of(c.dstMemoryType, c.dstDevice, c.dstHost), c.dstXInBytes, c.dstY,
                 c.dstPitch));
}

void Participants::add(const CUDA_MEMCPY3D* copy) { add_box(*copy); }

void Participants::add(const CUDA_MEMCPY3D_PEER* copy) {
  add_context(copy->srcContext);
  add_context(copy->dstContext);
  add_box(*copy);
}

template <typename Copy>
void Participants::add_box(const Copy& c) {
  add(first_byte(address_of(c.srcMemoryType, c.srcDevice, c.srcHost), c.srcXInBytes, c.srcY,
                 c.srcPitch, c.srcZ, c.srcHeight));
  add(first_byte(address_of(c.dstMemoryType, c.dstDevice, c.dstHost), c.dstXInBytes, c.dstY,
                 c.dstPitch, c.dstZ, c.dstHeight));
}

void Participants::add(CUDA_MEMCPY3D_BATCH_OP* copies) {
  for (size_t i = 0; copies != nullptr && i < count_; ++i) {
    for (const CUmemcpy3DOperand* operand : {&copies[i].src, &copies[i].dst}) {
      if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) add(operand->op.ptr.ptr);
    }
  }
}

// Memory that is bound to a logical endpoint is never pooled (hooks/mappings.cc).
void Participants::add(CUDA_FABRIC_COPY_BATCH_OP* copies) {
  for (size_t i = 0; copies != nullptr && i < count_; ++i) {
    for (const CUfabricCpyOperand* operand : {&copies[i].src, &copies[i].dst}) {
      if (operand->type == CU_FABRIC_COPY_OPERAND_TYPE_POINTER) add(operand->op.ptr.ptr);
    }
  }
}

void Participants::add(CUmemDecompressParams* parameters) {
  for (size_t i = 0; parameters != nullptr && i < count_; ++i) {
    add(parameters[i].src);
    add(parameters[i].dst);
    add(reinterpret_cast<CUdeviceptr>(parameters[i].dstActBytes));
  }
}

void Participants::add(CUstreamBatchMemOpParams* operations) {
  for (size_t i = 0; operations != nullptr && i < count_; ++i) {
    const CisternAtomicReduction reduction = as_reduction(operations[i]);
    switch (reduction.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        add(operations[i].waitValue.address);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        add(operations[i].writeValue.address);
        break;
      case CISTERN_ATOMIC_REDUCTION:
        add(reduction.address);
        break;
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      case CU_STREAM_MEM_OP_BARRIER:
        break;
      default:  // unknown: it may touch memory of any context
        contexts_.add(living_contexts());
        break;
    }
  }
}

void Participants::tie() const {
  if (!contexts_.several()) return;
  const FollowedCopy followed(contexts_, stream_);
  shim::tie(contexts_, contexts_);
}

}  // namespace cistern::shim
