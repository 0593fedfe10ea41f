// SPDX-License-Identifier: Apache-2.0
// When a request fails, and with which error. A call that a pool serves without the driver must
// fail if the driver's call would: the driver returns some errors before it looks at a size or an
// address. Before any call returns out of memory, idle memory on the device goes back to the
// driver, and the call is made again. Any thread.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"
#include "shim/order/ask.h"
#include "shim/process/settings.h"

namespace cistern::shim {

struct Context;

// The driver refuses every call about memory if no context is current, if the context has ended or
// a fault ended its work, and inside a host function on a stream. Returns the driver's error then,
// else CUDA_SUCCESS. `owner` is the context of the block that the call names.
CUresult refusal(Context& owner);
// The same for a call that names no block of a pool.
CUresult refusal_here();

// To be called during a capture: makes a call that the driver counts as unsafe, like cuMemFree
// (cuda.h, cuThreadExchangeStreamCaptureMode), and returns its result. If the driver refuses it,
// the capture becomes invalid, as it would by cuMemFree.
CUresult ask_for_unsafe_call();

// The error of an allocation for which there is no memory. The error of a context after a fault, or
// of a capture that forbids the call, takes precedence over out of memory. Not for stream-ordered
// allocations.
CUresult no_room();
// The same for physical memory (cuMemCreate), which no capture forbids.
CUresult no_room_for_units();

// Releases what is kept idle on a device; false if neither this thread nor another released
// anything. To be called only after the driver or a cap said that memory is out.
bool release_idle_memory(CUdevice device);
// The same for the current device. Also releases idle stream-ordered memory on every device,
// because the stream or pool of the request may belong to another one.
bool release_idle_memory();

// In a careful process (order/careful.h), after a free: returns all free memory of the pools of the
// block's context to the driver at once. The driver's frees wait as the program's own would have.
void return_freed(Context& context);

// A pool cannot serve a request: logs that, counts it if the cap is the reason, and returns CUDA's
// error code.
CUresult out_of_memory(Context& context, size_t bytes);

// Makes the call again as long as it says that memory is out and release_idle() released something.
// That takes several attempts, because other threads fill and empty their pools meanwhile.
template <typename Result, typename Call, typename Release>
Result again_with_idle_memory(Result result, Call call, Release release_idle) {
  constexpr int kAttempts = 16;
  for (int i = 0; i < kAttempts && result == CUDA_ERROR_OUT_OF_MEMORY && release_idle(); ++i) {
    result = call();
  }
  return result;
}
template <typename Result, typename Call>
Result again_with_idle_memory(Result result, Call call) {
  return again_with_idle_memory(result, call, [] { return release_idle_memory(); });
}

// A call of the program that takes memory from the driver itself.
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

// For a driver call that returned out of memory though it does not allocate memory for the program.
// Unless something captures, it is made once more if idle memory could be released.
bool release_for_once_more();
template <typename Call>
CUresult once_more_with_idle_memory(Call call) {
  return release_for_once_more() ? call() : CUDA_ERROR_OUT_OF_MEMORY;
}
template <typename Function, typename... Arguments>
CUresult ask_with_idle_memory(Function* real, Arguments... arguments) {
  const auto call = [&] { return ask(real, arguments...); };
  const CUresult result = call();
  return result != CUDA_ERROR_OUT_OF_MEMORY ? result : once_more_with_idle_memory(call);
}

}  // namespace cistern::shim
