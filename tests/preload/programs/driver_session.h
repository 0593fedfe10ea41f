// SPDX-License-Identifier: Apache-2.0
// One session with the driver API, for programs that differ only in how they find its functions.
// Prints what it saw: offsets instead of addresses, checksums instead of data.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <vector>

struct DriverCalls {
  CUresult (*init)(unsigned);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*alloc)(CUdeviceptr*, size_t);
  CUresult (*free)(CUdeviceptr);
  CUresult (*info)(size_t*, size_t*);
  CUresult (*range)(CUdeviceptr*, size_t*, CUdeviceptr);
  CUresult (*fill)(CUdeviceptr, unsigned char, size_t);
  CUresult (*to_device)(CUdeviceptr, const void*, size_t);
  CUresult (*to_host)(void*, CUdeviceptr, size_t);
  CUresult (*synchronize)();
};

inline unsigned long long round_trip(const DriverCalls& cu, CUdeviceptr block, size_t bytes,
                                     unsigned char seed) {
  std::vector<unsigned char> out(bytes / 2, seed), in(bytes);
  cu.fill(block, 1, bytes);
  cu.to_device(block, out.data(), out.size());
  cu.to_host(in.data(), block, bytes);
  unsigned long long sum = 0;
  for (const unsigned char byte : in) sum += byte;
  return sum;
}

// Allocates and frees in a loop, then asks about one block and provokes the usual errors.
inline int run_session(const DriverCalls& cu) {
  CUcontext context;
  if (cu.init(0) != CUDA_SUCCESS || cu.retain(&context, 0) != CUDA_SUCCESS ||
      cu.set_current(context) != CUDA_SUCCESS) {
    std::printf("no context\n");
    return 1;
  }
  unsigned long long sum = 0;
  for (int i = 0; i < 100; ++i) {
    const size_t bytes = i % 10 == 0 ? (size_t{1} << 21) + 4096 * i : 2000 + 64 * i;
    CUdeviceptr block = 0;
    const CUresult allocated = cu.alloc(&block, bytes);
    sum += round_trip(cu, block, bytes, static_cast<unsigned char>(i));
    const CUresult freed = cu.free(block);
    if (allocated != CUDA_SUCCESS || freed != CUDA_SUCCESS) {
      std::printf("round %d: allocated %d, freed %d\n", i, allocated, freed);
    }
  }
  std::printf("sum %llu\n", sum);

  CUdeviceptr block = 0, base = 0;
  size_t size = 0, free_bytes = 0, total_bytes = 0;
  const CUresult allocated = cu.alloc(&block, 12345);
  const CUresult asked = cu.range(&base, &size, block + 100);
  std::printf("alloc %d, range %d: offset %lld, size %zu\n", allocated, asked,
              static_cast<long long>(block - base), size);
  std::printf("size alone %d, base alone %d\n", cu.range(nullptr, &size, block),
              cu.range(&base, nullptr, block));
  const CUresult informed = cu.info(&free_bytes, &total_bytes);
  std::printf("info %d, free <= total %d\n", informed, free_bytes <= total_bytes);
  std::printf("total alone %d\n", cu.info(nullptr, &total_bytes));
  std::printf("alloc of 0: %d\n", cu.alloc(&base, 0));
  std::printf("alloc of 2^60: %d\n", cu.alloc(&base, size_t{1} << 60));
  const CUresult freed = cu.free(block);
  std::printf("free %d, again %d, of 0: %d\n", freed, cu.free(block), cu.free(0));
  std::printf("synchronize %d\n", cu.synchronize());
  return 0;
}
