// SPDX-License-Identifier: Apache-2.0
// Calls of the driver on the program's behalf: its result goes to the program unchanged. An error
// that may mean a dead context is recorded. Any thread.
//
// After a kernel's fault every driver call in its context returns the kernel's error code, until
// the context ends. An allocation or a free that a pool serves must return the same, but makes no
// driver call. So a context becomes suspect when a driver call that Cistern sees returns a code
// that may last. From then on each allocation and free in it asks the driver first, until the
// driver returns no error: a code that does not last costs one such call.
#pragma once

#include "shim/cuda_api.h"
#include "shim/entry/driver.h"
#include "shim/order/contexts/context_slot.h"

namespace cistern::shim {

// Put noted() around driver calls whose result can show a fault; it returns the result. `handle`:
// the context of the call; nullptr: the current one.
void note_failure(CUresult answer, CUcontext handle);
inline CUresult noted(CUresult answer, CUcontext handle = nullptr) {
  if (answer != CUDA_SUCCESS) [[unlikely]]
    note_failure(answer, handle);
  return answer;
}

// CUDA_SUCCESS, or the error that the driver now returns for every call in this context. Returns
// CUDA_SUCCESS also if the driver cannot be called (another context is current, or a capture is in
// progress).
CUresult ask_suspect(ContextSlot& context);
inline CUresult condition_of(ContextSlot& context) {
  if (context.suspicion.load(std::memory_order_relaxed) == 0) [[likely]]
    return CUDA_SUCCESS;
  return ask_suspect(context);
}

// The result of a hook whose function the driver lacks. Only a program that calls Cistern's export
// without a driver gets it.
inline constexpr CUresult kNoDriver = CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;

template <typename Function, typename... Arguments>
CUresult ask(Function* real, Arguments... arguments) {
  return real == nullptr ? kNoDriver : noted(real(arguments...));
}

// What a function means by stream 0: the context's legacy stream, or (names that end in _ptsz or
// _ptds) the calling thread's own stream. name() is the handle under which functions without that
// ending know the same stream.
struct Legacy {
  static CUstream name(CUstream stream) { return stream; }
  static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
    return ask(driver().cuStreamIsCapturing, stream, status);
  }
};
struct PerThread {
  static CUstream name(CUstream stream) {
    return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
  }
  static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
    return ask(driver().cuStreamIsCapturing_ptsz, stream, status);
  }
};

// Sets *capturing to whether the stream captures; an error is the driver's, for example about a
// handle that is no stream.
template <typename Kind>
CUresult captures(CUstream stream, bool* capturing) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = Kind::is_capturing(stream, &status);
  *capturing = result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
  return result;
}

}  // namespace cistern::shim
