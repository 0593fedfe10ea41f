// SPDX-License-Identifier: Apache-2.0
// Times pairs of cudaMalloc + cudaFree from 512 B to 1 GiB, and of cudaHostAlloc + cudaFreeHost to
// 64 MiB, and prints one JSON array. It knows nothing of Cistern: tests/gpu/check.py runs it with
// and without. A size as an argument is the largest one.
//
//   idle_ns        pairs with the device idle
//   in_flight_ns   pairs beside a kernel, so that no earlier work is known to be over
//   used_ns        pairs with a short kernel in between that uses the block; the time of all three
//   launch_ns      that kernel alone, on a block that stays
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "../preload/programs/kernels.cuh"
#include "limit.h"

namespace {

constexpr int kPairsInFlight = 8;  // per kernel; the driver's own cudaFree may wait for it
constexpr uint32_t kKernelUs = 2000, kShortUs = 20;
constexpr int kUses = 100;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "pairs: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void spin(uint32_t us, void* words = nullptr) {
  slow_fill_words<<<1, 1>>>(static_cast<uint32_t*>(words), words == nullptr ? 0 : 1, 1, us);
  check(cudaGetLastError(), "launch");
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
  pair(bytes);
  double total = 0;
  for (int i = 0; i < kKernels; ++i) {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    spin(kKernelUs);
    total += ns_of([&] {
      for (int k = 0; k < kPairsInFlight; ++k) pair(bytes);
    });
  }
  return total / (kKernels * kPairsInFlight);
}

double used(size_t bytes) {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const double total = ns_of([&] {
    for (int i = 0; i < kUses; ++i) {
      void* pointer = nullptr;
      check(cudaMalloc(&pointer, bytes), "cudaMalloc");
      spin(kShortUs, pointer);
      check(cudaFree(pointer), "cudaFree");
    }
  });
  return total / kUses;
}

double launch(size_t bytes) {
  void* pointer = nullptr;
  check(cudaMalloc(&pointer, bytes), "cudaMalloc");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const double total = ns_of([&] {
    for (int i = 0; i < kUses; ++i) spin(kShortUs, pointer);
  });
  check(cudaFree(pointer), "cudaFree");
  return total / kUses;
}

void tell(const char* what, double ns) { std::printf(", \"%s\": %.1f", what, ns); }

}  // namespace

int main(int argc, char** argv) {
  const size_t largest = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : size_t{1} << 30;
  size_t free_bytes = 0, total_bytes = 0;
  end_in_time();
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  spin(1);  // the module is loaded lazily; not inside a measurement
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const char* separator = "[\n";
  for (size_t bytes = 512; bytes <= largest; bytes *= 2) {
    if (bytes * (kPairsInFlight + 1) > free_bytes) break;
    std::printf("%s {\"bytes\": %zu", separator, bytes);
    tell("idle_ns", idle(device_pair, bytes));
    tell("in_flight_ns", in_flight(device_pair, bytes));
    tell("used_ns", used(bytes));
    tell("launch_ns", launch(bytes));
    if (bytes <= size_t{64} << 20) {
      tell("pinned_idle_ns", idle(pinned_pair, bytes));
      tell("pinned_in_flight_ns", in_flight(pinned_pair, bytes));
    }
    std::printf("}");
    separator = ",\n";
  }
  std::printf("\n]\n");
  return 0;
}
