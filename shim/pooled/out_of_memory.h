// SPDX-License-Identifier: Apache-2.0
// Where a request gets an error, and which one. A call that a pool serves alone must fail if the
// driver's would: some errors come before the driver looks at a size or an address. And before any
// call returns out of memory, idle memory on the device is released to the driver and the call is
// made again. Any thread.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"
#include "shim/order/ask.h"
#include "shim/process/settings.h"

namespace cistern::shim {

struct Context;

// The driver refuses every call about memory without a context, in one that is gone or whose work
// died, and inside a host function on a stream: its error then, else CUDA_SUCCESS. `owner` is the
// context of the block in question.
CUresult refusal(Context& owner);
// The same where no block of ours is in question.
CUresult refusal_here();

// To be called while something captures: what the driver answers this thread to a call as unsafe as
// cuMemFree (cuda.h, cuThreadExchangeStreamCaptureMode). Where it refuses, the capture becomes
// invalid, as it would by the call itself.
CUresult ask_for_unsafe_call();

// What the driver would say of an allocation, other than a stream-ordered one, for which there is
// no room: a context whose work died, or a capture that forbids the call, comes first.
CUresult no_room();
// The same of physical memory, which a capture does not forbid to make.
CUresult no_room_for_units();

// Releases what is kept idle on a device; false if neither this thread nor another released
// anything. To be called only after the driver or a cap said that memory is out.
bool release_idle_memory(CUdevice device);
// The same on the current device, and of stream-ordered memory on every device: the stream or pool
// of the request may be another device's.
bool release_idle_memory();

// In a careful process (order/careful.h), after a free: what the pools of the block's context have
// free goes back at once, by frees of the driver, which wait as the program's own would have.
void return_freed(Context& context);

// A request to a pool cannot be served: counts that if the cap is the reason, logs it, and returns
// CUDA's code.
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

// A call that may need device memory without asking for any said that memory is out. Outside a
// capture it is made once more, if anything idle could be released.
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
