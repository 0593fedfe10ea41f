// SPDX-License-Identifier: Apache-2.0
// Error handling of the test programs: an unexpected CUDA error ends the program with its name on
// stdout, where the comparison with the other run sees it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call) check((call), #call, __FILE__, __LINE__)

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  std::printf("%s:%d: %s: %s\n", file, line, call, cudaGetErrorName(status));
  std::fflush(stdout);
  std::_Exit(1);
}

// A small generator that gives the same numbers everywhere.
class Random {
 public:
  explicit Random(unsigned long long seed) : state_(seed) {}
  unsigned below(unsigned bound) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<unsigned>(state_ >> 33) % bound;
  }

 private:
  unsigned long long state_;
};
