// SPDX-License-Identifier: Apache-2.0
#include "shim/order/cuda_source.h"

#include "allocator/base/counted_in.h"
#include "allocator/reclaim/reclaim.h"
#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/streams/events.h"
#include "shim/order/suspicion.h"
#include "shim/process/background.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"

namespace cistern::shim {

using alloc::Mark;
using alloc::MarkState;

namespace {

// Whether this driver can record one event for a whole context (CUDA 12.5 and newer).
bool records_contexts() { return driver().cuCtxRecordEvent != nullptr; }

// Frees memory of the current context; kNotNow if it is still allocated. The error of a free may be
// the refusal of this call or belong to earlier work, so the driver is asked whether it still knows
// the address. The error is returned only if it does not, or if the context is gone; in doubt the
// memory is kept.
int free_or_keep(CUdeviceptr address, CUcontext context) {
  const CUresult freed = noted(driver().cuMemFree_v2(address), context);
  if (freed == CUDA_SUCCESS) return freed;
  if (!may_call()) return alloc::kNotNow;
  CUdeviceptr base;
  size_t bytes;
  switch (driver().cuMemGetAddressRange_v2(&base, &bytes, address)) {
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
      return freed;
    default:
      return alloc::kNotNow;
  }
}

}  // namespace

static_assert(alloc::kSuccess == CUDA_SUCCESS && alloc::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(alloc::kContextGone == CUDA_ERROR_CONTEXT_IS_DESTROYED);

void CudaSource::init(CUcontext context, CUdevice device, const Others* others) {
  context_ = context;
  device_ = device;
  others_ = others;
  spares_ = 0;
  own_stream_.store(nullptr, std::memory_order_relaxed);
  clean_refused_.store(false, std::memory_order_relaxed);
  stream_marks_.init(context);
}

int CudaSource::obtain(uint64_t bytes, uint64_t* address) {
  CUdeviceptr p = 0;
  const CUresult result = noted(driver().cuMemAlloc_v2(&p, bytes), context_);
  *address = p;
  return result;
}

int CudaSource::release_for_program(uint64_t address) {
  return noted(driver().cuMemFree_v2(address), context_);
}

// The calling thread may have another context current than the block's. While something captures,
// only a thread that has changed its capture mode may free (out_of_memory.cc), and it asks the
// driver nothing else.
int CudaSource::release(uint64_t address) {
  const GatePass pass;
  if ((!pass && !this_thread.may_free_in_capture) || !may_touch_context()) return alloc::kNotNow;
  const ContextScope scope(context_);
  if (!scope) return alloc::kNotNow;
  if (pass) return free_or_keep(address, context_);
  return driver().cuMemFree_v2(address) == CUDA_SUCCESS ? alloc::kSuccess : alloc::kNotNow;
}

// A stream that no work of the program is ordered with. It ends with the context, which must be
// current. nullptr when the driver refuses to create one.
CUstream CudaSource::own_stream() {
  CUstream stream = own_stream_.load();
  if (stream != nullptr) return stream;
  CUstream made = nullptr;
  if (driver().cuStreamCreate(&made, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return nullptr;
  if (own_stream_.compare_exchange_strong(stream, made)) return made;
  driver().cuStreamDestroy_v2(made);
  return stream;
}

// cuMemFree waits for everything the device does, cuMemFreeAsync only for its stream. A driver that
// does not take memory of cuMemAlloc there answers with an error and frees nothing.
int CudaSource::release_clean(uint64_t address) {
  const GatePass pass;
  if (!pass || !may_touch_context()) return alloc::kNotNow;
  const ContextScope scope(context_);
  CUstream stream = scope ? own_stream() : nullptr;
  if (stream == nullptr) return alloc::kNotNow;
  if (noted(driver().cuMemFreeAsync(address, stream), context_) != CUDA_SUCCESS) {
    clean_refused_.store(true);
    return alloc::kNotNow;
  }
  if (may_call()) driver().cuStreamSynchronize(stream);
  return alloc::kSuccess;
}

bool CudaSource::request_background_work(bool soon) {
  return others_->request_background_work(soon);
}

bool CudaSource::may_touch_context() const { return !closing() && may_call(); }

bool CudaSource::refuses_release() { return !may_touch_context() || capture_gate().capturing(); }

// The stream may hold fills of other threads, but no work of the program's. The fills that were
// begun are waited for even if a later one failed. If the wait fails, it is made once more: unless
// the context died, the error was that of other work, and the wait may not have taken place.
int CudaSource::fill(const alloc::FillRange* ranges, int count) {
  const Driver& d = driver();
  const GatePass pass;
  if (!pass) return alloc::kNotNow;
  const alloc::CountedIn filling(filling_);
  if (!may_touch_context() || d.cuMemsetD8Async == nullptr) return alloc::kContextGone;
  const ContextScope scope(context_);
  CUstream stream = scope ? own_stream() : nullptr;
  if (stream == nullptr) return alloc::kContextGone;
  const auto byte = static_cast<unsigned char>(policy().fill_byte());
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    result = noted(d.cuMemsetD8Async(ranges[i].address, byte, ranges[i].bytes, stream), context_);
  }
  if (noted(d.cuStreamSynchronize(stream), context_) == CUDA_SUCCESS) return result;
  const CUresult waited = d.cuStreamSynchronize(stream);
  return result != CUDA_SUCCESS ? result : waited;
}

bool CudaSource::can_release_clean() {
  return driver().cuMemFreeAsync != nullptr && !clean_refused_.load() && may_touch_context() &&
         !capture_gate().capturing();
}

bool CudaSource::release_from_other_pools() { return others_->release_from_other_pools(device_); }

void CudaSource::shortage_ended(alloc::Step step, uint64_t bytes) {
  static constexpr const char* kWhat[alloc::kSteps] = {
      "memory that had become clean",
      "a chunk of the usual size after idle memory was returned",
      "a smaller chunk",
      "a driver allocation of just that size",
      "a free block found elsewhere",
      "nothing; the program is told that memory is out",
  };
  log(config::LogLevel::kInfo, "memory is short on device %d: %llu bytes asked, served by %s",
      device_, static_cast<unsigned long long>(bytes), kWhat[static_cast<int>(step)]);
}

bool CudaSource::take_event(CUevent* event) {
  if (spares_ > 0) {
    *event = spare_[--spares_];
    return true;
  }
  const ContextScope scope(context_);
  return scope && create_event(event);
}

bool CudaSource::mark(Mark* out) {
  const GatePass pass;
  if (!pass || !may_touch_context()) return false;
  // An event on the legacy stream orders other streams. So it is recorded only inside a call of the
  // program, whose own driver call would have done that, too (stream_marks.h).
  if (!records_contexts()) return !in_background() && stream_marks_.mark(out);
  CUevent event;
  if (!take_event(&event)) return false;
  *out = reinterpret_cast<Mark>(event);
  if (noted(driver().cuCtxRecordEvent(context_, event), context_) == CUDA_SUCCESS) return true;
  forget(*out);
  return false;
}

MarkState CudaSource::query(Mark mark) {
  const GatePass pass;
  if (!pass || !may_touch_context()) return MarkState::pending;
  return records_contexts() ? state_of(reinterpret_cast<CUevent>(mark), context_)
                            : stream_marks_.query(mark);
}

void CudaSource::forget(Mark mark) {
  if (!records_contexts()) return stream_marks_.forget(mark);
  // At most Timeline::kMarks events are outstanding, and one is being recorded: there is always
  // room.
  static_assert(kEvents > alloc::Timeline::kMarks);
  spare_[spares_++] = reinterpret_cast<CUevent>(mark);
}

bool CudaSource::stream_leaves(CUstream stream) {
  const GatePass pass;
  return pass && !closing() && stream_marks_.stream_leaves(stream);
}

}  // namespace cistern::shim
