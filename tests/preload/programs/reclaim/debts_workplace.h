// SPDX-License-Identifier: Apache-2.0
// What programs about frees that leave their order to the device work with.
#pragma once

#include "../driver_codes.h"
#include "../timed_code.h"

inline constexpr size_t kWords = 64, kBytes = kWords * sizeof(uint32_t);
inline constexpr uint32_t kDelayUs = 1000;

inline CUdeviceptr new_block(size_t bytes) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, bytes));
  return block;
}

inline CUstream new_stream(unsigned flags) {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, flags));
  return stream;
}

inline uint32_t* new_pinned() {
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, kBytes, 0));
  return static_cast<uint32_t*>(memory);
}

inline CUevent new_event() {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
  return event;
}

// What a program works with, in the context that is current. Nothing of the host's is within reach.
struct Workplace {
  timed::Kernels kernels;
  CUstream first = timed::new_stream(), second = timed::new_stream();
  CUdeviceptr words = new_block(kBytes), copy = new_block(kBytes);
  uint32_t seed = 0;

  // Work that takes a while, and a free behind it.
  void write_and_free(CUstream stream, size_t bytes = 1000) {
    const CUdeviceptr block = new_block(bytes);
    MUST(timed::fill_words(kernels, stream, words, kWords, ++seed, kDelayUs));
    MUST(cuMemFree(block));
  }
  // Whether the words are there when `stream` copies them.
  bool read_on(CUstream stream) const {
    MUST(cuMemcpyDtoDAsync(copy, words, kBytes, stream));
    return holds(copy, seed);
  }
  static bool holds(CUdeviceptr words, uint32_t first) {
    uint32_t host[kWords];
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH(host, words, kBytes));
    for (uint32_t i = 0; i < kWords; ++i) {
      if (host[i] != first + i) return false;
    }
    return true;
  }
};

inline void say_if(const char* what, bool so) { std::printf("%s: %s\n", what, so ? "yes" : "no"); }
