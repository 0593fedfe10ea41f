// SPDX-License-Identifier: Apache-2.0
//
// Times pairs of cudaMalloc + cudaFree from 256 B to 1 GiB, and of cudaHostAlloc + cudaFreeHost to
// 64 MiB, with the device idle and with a kernel in flight, and prints one JSON array. It knows
// nothing of Cistern: tests/gpu/check.py runs it with and without. With a kernel in flight a freed
// block may not be handed out again until the kernel is done, so these pairs show what a pool does
// when nothing is clean.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kPairsInFlight = 8;  // per kernel; the driver's own cudaFree may wait for it

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "pairs: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

__global__ void spin(long long ns) {
  long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < ns);
}

using Pair = void (*)(size_t bytes);

void device_pair(size_t bytes) {
  void* pointer = nullptr;
  check(cudaMalloc(&pointer, bytes), "cudaMalloc");
  check(cudaFree(pointer), "cudaFree");
}

void pinned_pair(size_t bytes) {
  void* pointer = nullptr;
  check(cudaHostAlloc(&pointer, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  check(cudaFreeHost(pointer), "cudaFreeHost");
}

template <typename F>
double ns_of(F&& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count();
}

double idle(Pair pair, size_t bytes) {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  pair(bytes);  // the first one fills caches, the driver's and ours
  int pairs = 0;
  double total = 0;
  while (pairs < 20000 && total < 2e8) {
    total += ns_of([&] {
      for (int i = 0; i < 50; ++i) pair(bytes);
    });
    pairs += 50;
  }
  return total / pairs;
}

double in_flight(Pair pair, size_t bytes) {
  constexpr int kKernels = 10;
  double total = 0;
  for (int i = 0; i < kKernels; ++i) {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    spin<<<1, 1>>>(2'000'000);
    check(cudaGetLastError(), "launch");
    total += ns_of([&] {
      for (int k = 0; k < kPairsInFlight; ++k) pair(bytes);
    });
  }
  return total / (kKernels * kPairsInFlight);
}

}  // namespace

int main() {
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  spin<<<1, 1>>>(1);  // the module is loaded lazily; not inside a measurement
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const char* separator = "[\n";
  for (size_t bytes = 256; bytes <= size_t{1} << 30; bytes *= 4) {
    if (bytes * (kPairsInFlight + 1) > free_bytes) break;
    std::printf("%s {\"bytes\": %zu, \"idle_ns\": %.1f, \"in_flight_ns\": %.1f", separator, bytes,
                idle(device_pair, bytes), in_flight(device_pair, bytes));
    if (bytes <= size_t{64} << 20) {
      std::printf(", \"pinned_idle_ns\": %.1f, \"pinned_in_flight_ns\": %.1f",
                  idle(pinned_pair, bytes), in_flight(pinned_pair, bytes));
    }
    std::printf("}");
    separator = ",\n";
  }
  std::printf("\n]\n");
  return 0;
}
