// SPDX-License-Identifier: Apache-2.0
// Functions that came after CUDA 13.0, for programs that are built with its toolkit: looked up by
// name and version, as NVIDIA's runtime does it.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

// The function `symbol`, which the driver has under this name since this version of CUDA.
#define NEWER(symbol, name, version) newer::find<decltype(&symbol)>(name, version)

namespace newer {

template <typename Function>
Function find(const char* name, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult code =
      cuGetProcAddress(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
  if (code != CUDA_SUCCESS || function == nullptr) {
    std::printf("%s: not found\n", name);
    std::fflush(stdout);
    std::_Exit(1);
  }
  return reinterpret_cast<Function>(function);
}

}  // namespace newer
