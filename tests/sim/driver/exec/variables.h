// SPDX-License-Identifier: Apache-2.0
//
// A module's or library's variables, and where they are in each context. Memory of the device,
// which no call frees: it goes with the module or with the context. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "exec/image.h"

namespace simcuda {

class Context;
class Device;

class Variables {
 public:
  Variables() = default;
  ~Variables();
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  // One that is known already stays as it is.
  void declare(const std::vector<Variable>& variables);

  // What is placed stays placed where the device has no room for the others.
  CUresult place_all(Context& context);

  // CUDA_ERROR_NOT_FOUND where none has this name. Both out-parameters may be null.
  CUresult find(Context& context, const char* name, CUdeviceptr* address, size_t* bytes);

 private:
  struct Place {
    Device* device;
    CUdeviceptr address;
    uint64_t allocation;  // its id: the context may have ended, and with it the allocation
  };

  CUresult place(Context& context, const Variable& variable, CUdeviceptr* address);

  std::mutex mutex_;
  std::map<std::string, Variable> by_name_;
  std::map<std::pair<uint64_t, std::string>, Place> places_;  // by context's id and name
};

}  // namespace simcuda
