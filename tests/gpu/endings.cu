// SPDX-License-Identifier: Apache-2.0
// The process ends right behind a free, while a kernel goes on that prints, or that fails. With the
// driver alone the free waits for it; where Cistern leaves that to the device, the end has to.
//
//   gpu_endings         names the endings
//   gpu_endings ENDING  ends so; check.py compares output and status without and with Cistern
//
// Whether the free itself tells of the failure is left out: with Cistern a later call does
// (shim/LIMITS.md). The kernels have host twins in tests/sim/kernels.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "limit.h"

__global__ void print_late(uint32_t delay_us) {
  const long long start = clock64();
  while (clock64() - start < 1500ll * delay_us) {
  }
  printf("printed by the device\n");
}

__global__ void trap_late(uint32_t delay_us) {
  const long long start = clock64();
  while (clock64() - start < 1500ll * delay_us) {
  }
  __trap();
}

namespace {

constexpr uint32_t kDelayUs = 20'000;

void must(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "endings: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

// Memory that is freed behind a kernel which has nothing to do with it.
struct Memory {
  void *device = nullptr, *pinned = nullptr;

  Memory() {
    must(cudaMalloc(&device, 1 << 20), "cudaMalloc");
    must(cudaMallocHost(&pinned, 4096), "cudaMallocHost");
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
};

void printing() {
  const Memory memory;
  print_late<<<1, 1>>>(kDelayUs);
  must(cudaFree(memory.device), "cudaFree");
}

void printing_pinned() {
  const Memory memory;
  print_late<<<1, 1>>>(kDelayUs);
  must(cudaFreeHost(memory.pinned), "cudaFreeHost");
}

void printing_exit() {
  printing();
  std::exit(5);
}

// Cistern's own exit handler, which came with the first free, has run by then.
void printing_in_a_handler() {
  static const Memory last;
  std::atexit([] {
    print_late<<<1, 1>>>(kDelayUs);
    must(cudaFree(last.device), "cudaFree");
  });
  printing();
}

void trapping() {
  const Memory memory;
  trap_late<<<1, 1>>>(kDelayUs);
  static_cast<void>(cudaFree(memory.device));
}

void trapping_told() {
  trapping();
  std::printf("then: %d\n", cudaDeviceSynchronize());
  void* more = nullptr;
  std::printf("and memory: %d\n", cudaMalloc(&more, 1 << 20));
}

struct Ending {
  const char* name;
  void (*run)();
};
constexpr Ending kEndings[] = {
    {"printing", printing},           {"printing_pinned", printing_pinned},
    {"printing_exit", printing_exit}, {"printing_in_a_handler", printing_in_a_handler},
    {"trapping", trapping},           {"trapping_told", trapping_told}};

}  // namespace

int main(int argc, char** argv) {
  end_in_time();
  for (const Ending& ending : kEndings) {
    if (argc < 2) std::printf("%s\n", ending.name);
    if (argc > 1 && std::strcmp(argv[1], ending.name) == 0) return ending.run(), 0;
  }
  return argc < 2 ? 0 : 2;
}
