// SPDX-License-Identifier: Apache-2.0
#include "shim/cuda_source.h"

#include "allocator/reclaim.h"
#include "shim/capture_gate.h"
#include "shim/context.h"
#include "shim/driver.h"
#include "shim/thread.h"

namespace cistern::shim {

using alloc::Mark;
using alloc::MarkState;

namespace {

// After a push: the program must find its stack of contexts as it was.
void restore_context() {
  CUcontext popped;
  if (driver().cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS) driver().cuCtxPopCurrent_v2(&popped);
}

}  // namespace

static_assert(alloc::kSuccess == CUDA_SUCCESS && alloc::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);

void CudaSource::init(CUcontext context, CUdevice device) {
  context_ = context;
  device_ = device;
  closing_.store(false, std::memory_order_relaxed);
  spares_ = 0;
}

int CudaSource::obtain(uint64_t bytes, uint64_t* address) {
  CUdeviceptr p = 0;
  const CUresult result = driver().cuMemAlloc_v2(&p, bytes);
  *address = p;
  return result;
}

int CudaSource::release(uint64_t address) { return driver().cuMemFree_v2(address); }

// The thread that frees a block may have another context current than the block's.
int CudaSource::give_back(uint64_t address) {
  const Driver& d = driver();
  const GatePass pass;
  if ((!pass && !this_thread.may_free_in_capture) || closing_.load()) return alloc::kNotNow;
  CUcontext current = nullptr;
  d.cuCtxGetCurrent(&current);
  const bool elsewhere = current != context_;
  if (elsewhere && d.cuCtxPushCurrent_v2(context_) != CUDA_SUCCESS) return alloc::kNotNow;
  const CUresult result = d.cuMemFree_v2(address);
  if (elsewhere) restore_context();
  return !pass && result != CUDA_SUCCESS ? alloc::kNotNow : static_cast<int>(result);
}

bool CudaSource::relieve() { return return_idle_memory_of(device_, /*except=*/current_context()); }

// An event belongs to the context that is current when it is created; that may be another one now.
bool CudaSource::take_event(CUevent* event) {
  if (spares_ > 0) {
    *event = spare_[--spares_];
    return true;
  }
  const Driver& d = driver();
  if (d.cuCtxPushCurrent_v2(context_) != CUDA_SUCCESS) return false;
  const bool created = d.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
  restore_context();
  return created;
}

bool CudaSource::mark(Mark* out) {
  const Driver& d = driver();
  const GatePass pass;
  CUevent event;
  if (!pass || d.cuCtxRecordEvent == nullptr || closing_.load() || !take_event(&event)) {
    return false;
  }
  *out = reinterpret_cast<Mark>(event);
  if (d.cuCtxRecordEvent(context_, event) == CUDA_SUCCESS) return true;
  forget(*out);
  return false;
}

MarkState CudaSource::query(Mark mark) {
  const GatePass pass;
  if (!pass || closing_.load()) return MarkState::pending;
  switch (driver().cuEventQuery(reinterpret_cast<CUevent>(mark))) {
    case CUDA_SUCCESS:
      return MarkState::passed;
    case CUDA_ERROR_NOT_READY:
      return MarkState::pending;
    default:
      return MarkState::failed;
  }
}

void CudaSource::forget(Mark mark) {
  // Timeline::kMarks outstanding ones and the one just being recorded: there is always room.
  static_assert(kEvents > alloc::Timeline::kMarks);
  spare_[spares_++] = reinterpret_cast<CUevent>(mark);
}

}  // namespace cistern::shim
