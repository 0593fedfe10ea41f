// SPDX-License-Identifier: Apache-2.0
// Each function asks for memory through one that allocates for others, twice.
//
// These are the runtime, which may be linked in, `operator new`, an allocator called like PyTorch's
// and one called like RMM's.
// Usage: behind_wrappers [too_much]: the last of them asks for more than there is.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <new>

// What is called last in a function would take its place on the stack.
#define NOINLINE __attribute__((noinline))

namespace {
constexpr size_t kMiB = size_t{1} << 20;
int failures = 0;
}  // namespace

struct OnDevice {
  char bytes[3 * kMiB];
  NOINLINE static void* operator new(size_t bytes) {
    void* block = nullptr;
    failures += cudaMalloc(&block, bytes) != cudaSuccess;
    return block;
  }
  static void operator delete(void* block) { cudaFree(block); }
};

namespace c10::cuda::CUDACachingAllocator {
NOINLINE void* raw_alloc(size_t bytes) {
  void* block = nullptr;
  failures += cudaMalloc(&block, bytes) != cudaSuccess;
  return block;
}
}  // namespace c10::cuda::CUDACachingAllocator

namespace rmm::mr {
struct resource {
  virtual ~resource() = default;
  virtual void* allocate(size_t bytes) = 0;
};
struct cuda_memory_resource : resource {
  NOINLINE void* allocate(size_t bytes) override {
    void* block = nullptr;
    failures += cudaMalloc(&block, bytes) != cudaSuccess;
    return block;
  }
};
}  // namespace rmm::mr

NOINLINE void by_runtime() {
  char* block = nullptr;
  failures += cudaMalloc(&block, 2 * kMiB) != cudaSuccess;
  failures += cudaFree(block) != cudaSuccess;
}

NOINLINE void by_operator_new() {
  OnDevice* volatile block = new OnDevice;
  delete block;
}

NOINLINE void by_c10() {
  void* block = c10::cuda::CUDACachingAllocator::raw_alloc(4 * kMiB);
  failures += cudaFree(block) != cudaSuccess;
}

NOINLINE void by_rmm(rmm::mr::resource& resource, size_t bytes) {
  void* block = resource.allocate(bytes);
  failures += cudaFree(block) != cudaSuccess;
}

int main(int argc, char** argv) {
  rmm::mr::cuda_memory_resource resource;
  for (int i = 0; i < 2; ++i) {
    by_runtime();
    by_operator_new();
    by_c10();
    by_rmm(resource, 5 * kMiB);
  }
  if (argc > 1 && std::strcmp(argv[1], "too_much") == 0) {
    char* kept = nullptr;
    failures += cudaMalloc(&kept, 40 * kMiB) != cudaSuccess;
    void* kept_too = c10::cuda::CUDACachingAllocator::raw_alloc(8 * kMiB);
    by_rmm(resource, 60 * kMiB);
    cudaFree(kept_too);
    cudaFree(kept);
  }
  std::printf("failures %d\n", failures);
}
