// SPDX-License-Identifier: Apache-2.0
// How the driver is asked on the program's behalf: its answers and error codes are the program's,
// and what they tell of a context is noted. Any thread.
#pragma once

#include "shim/cuda_api.h"
#include "shim/entry/driver.h"
#include "shim/order/suspicion.h"

namespace cistern::shim {

// What a hook answers when the driver has no such function: only a program that calls our export
// without a driver gets here.
inline constexpr CUresult kNoDriver = CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;

template <typename Function, typename... Arguments>
CUresult ask(Function* real, Arguments... arguments) {
  return real == nullptr ? kNoDriver : noted(real(arguments...));
}

// The stream functions that exist once per meaning of stream 0.
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

// Whether a stream captures, or the driver's word that there is no such stream.
template <typename Kind>
CUresult captures(CUstream stream, bool* capturing) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = Kind::is_capturing(stream, &status);
  *capturing = result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
  return result;
}

}  // namespace cistern::shim
