// SPDX-License-Identifier: Apache-2.0
// Before any call answers that memory is out, what the pools keep on the device goes back to the
// driver and the call is made again. Any thread.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"
#include "shim/order/ask.h"
#include "shim/process/settings.h"

namespace cistern::shim {

struct Context;

// Returns to the driver what is kept on a device; false if nothing went, by whomever. Only after
// the driver itself, or a cap, said that memory is out.
bool release_idle_memory(CUdevice device);
// The same on the current device, and of stream-ordered memory everywhere: a stream or a pool may
// be another device's.
bool release_idle_memory();

// A pool's request cannot be served: counts that, tells it in the log, and answers CUDA's code.
CUresult out_of_memory(Context& context, size_t bytes);

// As long as memory is out and something that was kept is returned: makes the call once more.
// Other threads fill and empty their pools meanwhile.
template <typename Result, typename Call, typename Return>
Result again_with_idle_memory(Result result, Call call, Return return_idle) {
  constexpr int kAttempts = 16;
  for (int i = 0; i < kAttempts && result == CUDA_ERROR_OUT_OF_MEMORY && return_idle(); ++i) {
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

}  // namespace cistern::shim
