// SPDX-License-Identifier: Apache-2.0
// An allocator that takes the place of cudaMalloc and cudaFree in an unmodified program
// (instead.cc): one is linked with each library. tests/bench/fragmenting builds and preloads them.
// One thread at a time; a context is current.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace instead {

// `stream`: the one on which the calling thread uses its memory.
CUresult allocate(size_t bytes, CUstream stream, CUdeviceptr* out);
// All work with the block was submitted to the stream.
CUresult release(CUdeviceptr address, CUstream stream);
// The most device memory that it held so far.
uint64_t held_peak();

}  // namespace instead
