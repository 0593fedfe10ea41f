// SPDX-License-Identifier: Apache-2.0
// Stream-ordered blocks that are used, for programs about who gets which again.
#pragma once

#include "../driver_codes.h"

inline CUstream new_stream() {
  CUstream stream = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

// Until the stream is done; no synchronisation, as far as the driver is concerned.
inline void finish(CUstream stream) {
  CUresult result;
  while ((result = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
  }
  if (result != CUDA_SUCCESS) std::printf("query: %d\n", result);
}

inline CUdeviceptr get(size_t bytes, CUstream stream) {
  CUdeviceptr block = 0;
  CUresult result = cuMemAllocAsync(&block, bytes, stream);
  if (result == CUDA_SUCCESS) result = cuMemsetD8Async(block, 1, bytes, stream);
  if (result != CUDA_SUCCESS) std::printf("get %zu: %d\n", bytes, result);
  return block;
}

inline void put(CUdeviceptr block, CUstream stream) {
  const CUresult result = cuMemFreeAsync(block, stream);
  if (result != CUDA_SUCCESS) std::printf("put: %d\n", result);
}

inline void say_free_memory() {
  size_t free = 0, total = 0;
  cuMemGetInfo(&free, &total);
  std::printf("free: %zu MiB\n", free / kMiB);
}

inline CUmemoryPool current_pool() {
  CUmemoryPool pool = nullptr;
  SAY(cuDeviceGetMemPool(&pool, 0));
  return pool;
}
