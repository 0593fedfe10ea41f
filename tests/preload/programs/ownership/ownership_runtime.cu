// SPDX-License-Identifier: Apache-2.0
// Every kind of memory given to every function of the runtime that frees.
// The error state after each is told, too.

#include <vector>

#include "../check.h"

namespace {

cudaStream_t g_stream;
alignas(4096) char g_host[8192];

struct Kind {
  const char* name;
  cudaError_t (*allocate)(void** out);
  cudaError_t (*free)(void* memory);
};

cudaError_t small(void** out) { return cudaMalloc(out, 5000); }
cudaError_t large(void** out) { return cudaMalloc(out, 3 << 20); }
cudaError_t pitched(void** out) {
  size_t pitch;
  return cudaMallocPitch(out, &pitch, 100, 50);
}
cudaError_t managed(void** out) { return cudaMallocManaged(out, 5000); }
cudaError_t ordered(void** out) { return cudaMallocAsync(out, 5000, g_stream); }
cudaError_t pinned(void** out) { return cudaMallocHost(out, 5000); }
cudaError_t mapped(void** out) { return cudaHostAlloc(out, 5000, cudaHostAllocMapped); }
cudaError_t registered(void** out) {
  *out = g_host;
  return cudaHostRegister(g_host, sizeof g_host, 0);
}
cudaError_t freed_small(void** out) {
  const cudaError_t result = small(out);
  return result == cudaSuccess ? cudaFree(*out) : result;
}
cudaError_t inside(void** out) {
  const cudaError_t result = large(out);
  *out = static_cast<char*>(*out) + 4096;
  return result;
}
cudaError_t nothing(void** out) {
  *out = nullptr;
  return cudaSuccess;
}

cudaError_t free_device(void* memory) { return cudaFree(memory); }
cudaError_t free_ordered(void* memory) { return cudaFreeAsync(memory, g_stream); }
cudaError_t free_pinned(void* memory) { return cudaFreeHost(memory); }
cudaError_t unregister(void* memory) { return cudaHostUnregister(memory); }
cudaError_t free_around(void* memory) { return cudaFree(static_cast<char*>(memory) - 4096); }
cudaError_t keep(void*) { return cudaSuccess; }

constexpr Kind kKinds[] = {
    {"cudaMalloc small", small, free_device},
    {"cudaMalloc large", large, free_device},
    {"cudaMallocPitch", pitched, free_device},
    {"cudaMallocManaged", managed, free_device},
    {"cudaMallocAsync", ordered, free_ordered},
    {"cudaMallocHost", pinned, free_pinned},
    {"cudaHostAlloc", mapped, free_pinned},
    {"cudaHostRegister", registered, unregister},
    {"freed", freed_small, keep},
    {"inside", inside, free_around},
    {"null", nothing, keep},
};

constexpr struct {
  const char* name;
  cudaError_t (*free)(void* memory);
} kFrees[] = {
    {"cudaFree", free_device},
    {"cudaFreeAsync", free_ordered},
    {"cudaFreeHost", free_pinned},
    {"cudaHostUnregister", unregister},
};

size_t free_memory() {
  size_t free_bytes = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  return free_bytes;
}

}  // namespace

int main() {
  CHECK(cudaStreamCreateWithFlags(&g_stream, cudaStreamNonBlocking));
  const size_t before = free_memory();
  unsigned* neighbour;
  CHECK(cudaMalloc(&neighbour, 5000));
  CHECK(cudaMemset(neighbour, 0x5e, 5000));
  for (const Kind& kind : kKinds) {
    for (const auto& function : kFrees) {
      void* memory = nullptr;
      const cudaError_t allocated = kind.allocate(&memory);
      const cudaError_t tried = function.free(memory), state = cudaGetLastError();
      const cudaError_t own = kind.free(memory), own_state = cudaGetLastError();
      std::printf("%s %d, %s %d %d, its own %d %d\n", kind.name, allocated, function.name, tried,
                  state, own, own_state);
      CHECK(cudaDeviceSynchronize());
    }
  }
  std::vector<unsigned char> seen(5000);
  unsigned long long sum = 0;
  CHECK(cudaMemcpy(seen.data(), neighbour, seen.size(), cudaMemcpyDeviceToHost));
  for (const unsigned char byte : seen) sum += byte;
  CHECK(cudaFree(neighbour));
  CHECK(cudaDeviceSynchronize());
  std::printf("sum %llu, memory lost: %lld\n", sum, static_cast<long long>(before - free_memory()));
  return 0;
}
