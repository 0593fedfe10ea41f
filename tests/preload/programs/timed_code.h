// SPDX-License-Identifier: Apache-2.0
// Kernels of kernels.cuh that take a while or wait for the host, for programs on the driver API.
// Each is launched with one thread: what they touch is short.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "kernel_image.h"

namespace timed {

using kernel_image::kImage;

// What these programs do must work: anything else ends them with the call and its code.
inline void must(const char* call, CUresult code) {
  if (code == CUDA_SUCCESS) return;
  std::printf("%s: %d\n", call, code);
  std::fflush(stdout);
  std::_Exit(1);
}

#define MUST(call) timed::must(#call, (call))

// The kernels, loaded into the context that is current.
struct Kernels {
  CUmodule module = nullptr;
  CUfunction fill = nullptr, sum = nullptr, hold = nullptr;

  Kernels() {
    MUST(cuModuleLoadData(&module, kImage));
    MUST(cuModuleGetFunction(&fill, module, "_Z15slow_fill_wordsPjmjj"));
    MUST(cuModuleGetFunction(&sum, module, "_Z14slow_sum_wordsPKjmPyj"));
    MUST(cuModuleGetFunction(&hold, module, "_Z10hold_wordsPjmjPVKj"));
  }
};

inline CUresult launch(CUfunction kernel, CUstream stream, void** parameters) {
  return kernel_image::launch(kernel, stream, parameters, /*threads=*/1);
}

// words[i] = seed + i, after `delay_us`.
inline CUresult fill_words(const Kernels& kernels, CUstream stream, CUdeviceptr words, size_t count,
                           uint32_t seed, uint32_t delay_us) {
  void* parameters[] = {&words, &count, &seed, &delay_us};
  return launch(kernels.fill, stream, parameters);
}

// By a launch that may begin before the kernel in front of it in its stream has ended.
inline CUresult launch_early(CUfunction kernel, CUstream stream, void** parameters) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cuLaunchKernelEx(&config, kernel, parameters, nullptr);
}

inline CUresult fill_words_early(const Kernels& kernels, CUstream stream, CUdeviceptr words,
                                 size_t count, uint32_t seed, uint32_t delay_us) {
  void* parameters[] = {&words, &count, &seed, &delay_us};
  return launch_early(kernels.fill, stream, parameters);
}

// *total, two words, grows by the sum of the words, after `delay_us`.
inline CUresult sum_words(const Kernels& kernels, CUstream stream, CUdeviceptr words, size_t count,
                          CUdeviceptr total, uint32_t delay_us) {
  void* parameters[] = {&words, &count, &total, &delay_us};
  return launch(kernels.sum, stream, parameters);
}

inline CUstream new_stream() {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

// A context, and what its work needs.
struct Worker {
  explicit Worker(CUcontext of) : context(of) {}
  void use() const { MUST(cuCtxSetCurrent(context)); }
  CUcontext context;
  Kernels kernels;
  CUstream stream = new_stream();
};

// Work that occupies a stream until the host lets it end.
class Held {
 public:
  Held(const Kernels& kernels, CUstream stream) {
    void* memory = nullptr;
    MUST(cuMemHostAlloc(&memory, sizeof(uint32_t), CU_MEMHOSTALLOC_PORTABLE));
    go_ = static_cast<uint32_t*>(memory);
    *go_ = 0;
    CUdeviceptr none = 0, go = 0;
    size_t count = 0;
    uint32_t seed = 0;
    MUST(cuMemHostGetDevicePointer(&go, go_, 0));
    void* parameters[] = {&none, &count, &seed, &go};
    MUST(launch(kernels.hold, stream, parameters));
  }
  void end() { __atomic_store_n(go_, 1, __ATOMIC_RELEASE); }

 private:
  uint32_t* go_;
};

}  // namespace timed
