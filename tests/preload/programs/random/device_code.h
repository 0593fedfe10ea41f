// SPDX-License-Identifier: Apache-2.0
// Kernels of kernels.cuh for programs on the driver API, launched as one block of threads.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "../kernel_image.h"

namespace random_work {

struct Kernels {
  CUfunction fill = nullptr, slow_fill = nullptr, hold = nullptr, check = nullptr;

  // Into the current context.
  CUresult load() {
    CUmodule module = nullptr;
    CUresult code = cuModuleLoadData(&module, kernel_image::kImage);
    const struct {
      CUfunction* function;
      const char* name;
    } all[] = {{&fill, "_Z10fill_wordsPjmj"},
               {&slow_fill, "_Z15slow_fill_wordsPjmjj"},
               {&hold, "_Z10hold_wordsPjmjPVKj"},
               {&check, "_Z11check_wordsPKjmjPy"}};
    for (const auto& [function, name] : all) {
      if (code == CUDA_SUCCESS) code = cuModuleGetFunction(function, module, name);
    }
    return code;
  }
};

inline CUresult launch(CUfunction kernel, CUstream stream, void** parameters,
                       unsigned threads = 256) {
  return kernel_image::launch(kernel, stream, parameters, threads);
}

// words[i] = seed + i
inline CUresult fill_words(const Kernels& kernels, CUstream stream, CUdeviceptr words, size_t count,
                           uint32_t seed) {
  void* parameters[] = {&words, &count, &seed};
  return launch(kernels.fill, stream, parameters);
}

// fill_words() that begins to write only after so long
inline CUresult slow_fill_words(const Kernels& kernels, CUstream stream, CUdeviceptr words,
                                size_t count, uint32_t seed, uint32_t delay_us) {
  void* parameters[] = {&words, &count, &seed, &delay_us};
  return launch(kernels.slow_fill, stream, parameters);
}

// fill_words() once the host has set *go, a word of pinned memory
inline CUresult hold_words(const Kernels& kernels, CUstream stream, CUdeviceptr words, size_t count,
                           uint32_t seed, const volatile uint32_t* go) {
  void* parameters[] = {&words, &count, &seed, &go};
  return launch(kernels.hold, stream, parameters, 1);
}

// verdict[0] += words that are not seed + i, verdict[1] += what they hold
inline CUresult check_words(const Kernels& kernels, CUstream stream, CUdeviceptr words,
                            size_t count, uint32_t seed, CUdeviceptr verdict) {
  void* parameters[] = {&words, &count, &seed, &verdict};
  return launch(kernels.check, stream, parameters);
}

}  // namespace random_work
