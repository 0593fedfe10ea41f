// SPDX-License-Identifier: Apache-2.0
//
// Short names for what tests of memory pools do.
#pragma once

#include <cstdint>

#include "device_code.h"

inline constexpr size_t kUnit = 2 * kMiB;

inline CUmemoryPool default_pool() {
  CUmemoryPool pool = nullptr;
  EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  return pool;
}

inline CUmemoryPool new_pool(unsigned handle_types = CU_MEM_HANDLE_TYPE_NONE, size_t most = 0) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.handleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
  properties.maxSize = most;
  CUmemoryPool pool = nullptr;
  EXPECT_OK(cuMemPoolCreate(&pool, &properties));
  return pool;
}

inline uint64_t told(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  EXPECT_OK(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

inline void expect_memory(CUmemoryPool pool, uint64_t reserved, uint64_t used) {
  EXPECT(told(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved);
  EXPECT(told(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == used);
}

inline void set_threshold(CUmemoryPool pool, cuuint64_t bytes) {
  EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

inline void set_flag(CUmemoryPool pool, CUmemPool_attribute attribute, int value) {
  EXPECT_OK(cuMemPoolSetAttribute(pool, attribute, &value));
}

inline CUdeviceptr ordered(size_t bytes, CUstream stream) {
  CUdeviceptr block = 0;
  EXPECT_OK(cuMemAllocAsync(&block, bytes, stream));
  return block;
}

inline CUstream apart() { return new_stream(CU_STREAM_NON_BLOCKING); }
