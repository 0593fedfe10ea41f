// SPDX-License-Identifier: Apache-2.0
// Calls of the driver on the program's behalf: its result goes to the program unchanged. An error
// that may mean a dead context is recorded (suspicion.h). Any thread.
#pragma once

#include "shim/cuda_api.h"
#include "shim/entry/driver.h"
#include "shim/order/suspicion.h"

namespace cistern::shim {

// What a hook answers when the driver has no such function: only a program that calls an export of
// Cistern's without a driver gets it.
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
