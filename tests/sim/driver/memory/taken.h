// SPDX-License-Identifier: Apache-2.0
//
// Device memory the driver takes for its own use (SIMCUDA_TAKES): code that is loaded, a larger
// stack, a stream's queue, a graph's nodes. Whoever needs it holds it; it is given back when that
// ends, or with the context. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/cuda.h"
#include "table/calls.h"

namespace simcuda {

class Context;
class Device;

class Taken {
 public:
  Taken(Device& device, uint64_t bytes) : device_(device), bytes_(bytes) {}
  ~Taken() { give_back(); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  // The first time: the same memory is given back once.
  void give_back();

 private:
  Device& device_;
  std::atomic<uint64_t> bytes_;
};

using TakenRef = std::shared_ptr<Taken>;

// Takes what the call is said to take; *taken stays null if that is nothing.
// CUDA_ERROR_OUT_OF_MEMORY where the device has no room.
CUresult take_for(Call call, Context& context, TakenRef* taken);

// A context ends, and with it all that was taken for it.
void give_back_all(const Context& context);

}  // namespace simcuda
