// SPDX-License-Identifier: Apache-2.0
// What all hooks share: their declarations, and how they ask the driver. Hooks forward: they tell
// the pools what the program did and ask the driver. Results and error codes are the driver's.
#pragma once

#include "shim/cuda_api.h"
#include "shim/entry/driver.h"
#include "shim/order/suspicion.h"
#include "shim/pooled/memory.h"
#include "shim/process/process.h"

#define CISTERN_HOOK(symbol, parameters, arguments) \
  extern "C" [[gnu::visibility("default")]] CUresult CUDAAPI symbol parameters;
#include "shim/hooks.def"
#undef CISTERN_HOOK

namespace cistern::shim {

// What a hook answers when the driver has no such function: only a program that calls our export
// without a driver gets here.
inline constexpr CUresult kNoDriver = CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;

template <typename Function, typename... Arguments>
CUresult ask(Function* real, Arguments... arguments) {
  return real == nullptr ? kNoDriver : noted(real(arguments...));
}

// Other kinds of memory stay the driver's, but it may lack what a pool keeps idle: then the pools
// return it and the program's call is made again.
template <typename Call>
CUresult ask_for_memory(Call call) {
  const CUresult result = call();
  if (result != CUDA_ERROR_OUT_OF_MEMORY || !active()) return result;
  return again_with_idle_memory(result, call);
}
template <typename Function, typename... Arguments>
CUresult ask_for_memory(Function* real, Arguments... arguments) {
  return ask_for_memory([&] { return ask(real, arguments...); });
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
