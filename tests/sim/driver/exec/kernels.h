// SPDX-License-Identifier: Apache-2.0
//
// Kernels by host twins (simcuda/kernels.h): the libraries named in SIMCUDA_KERNELS, modules that
// accept any image, and functions found by mangled name. Any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "exec/stream.h"
#include "memory/taken.h"
#include "simcuda/kernels.h"

namespace simcuda {

class Context;

// Contexts in which a kernel was launched once: its code is loaded there.
struct LoadedIn {
  std::mutex mutex;
  std::map<uint64_t, TakenRef> contexts;  // by id
};

struct Function {
  const SimcudaKernel* twin;
  CUmodule module;    // null for a function of a library
  CUlibrary library;  // null for a function of a module
  std::shared_ptr<LoadedIn> loaded = std::make_shared<LoadedIn>();
};

CUresult load_module(Call call, Context& context, const void* image, CUmodule* module);
CUresult unload_module(CUmodule module);
// Without a context nothing is loaded yet.
CUresult load_library(Call call, Context* context, const void* image, CUlibrary* library);
CUresult unload_library(CUlibrary library);

// CUDA_ERROR_NOT_FOUND where no twin has this name.
CUresult find_function(CUmodule module, const char* name, CUfunction* function);
CUresult find_kernel(CUlibrary library, const char* name, CUkernel* kernel);

// Where a variable is in a context; a library's takes its memory there the first time.
// CUDA_ERROR_NOT_FOUND where there is none of this name.
CUresult find_variable(CUmodule module, const char* name, CUdeviceptr* address, size_t* bytes);
CUresult find_variable(Context& context, CUlibrary library, const char* name, CUdeviceptr* address,
                       size_t* bytes);

// Functions and kernels are one kind of object here, and handles of either are accepted, but for
// cuFuncGetParamInfo: a kernel's has its lowest bit set. Null if unknown.
std::shared_ptr<Function> function_of(CUfunction handle);
bool is_kernel(CUfunction handle);
// The function's own handle.
CUfunction without_kernel_bit(CUfunction handle);

struct LaunchShape {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
};

// kEarly: with programmatic stream serialization (exec/out_of_order.h).
enum class Start : uint8_t { kInOrder, kEarly };

// Copies the parameters, declares the ranges, and gives the body to the stream.
CUresult launch(Call call, CUfunction function, const LaunchShape& shape, const StreamRef& stream,
                void** params, void** extra, Start start = Start::kInOrder);

}  // namespace simcuda
