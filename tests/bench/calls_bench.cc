// SPDX-License-Identifier: Apache-2.0
//
// A plain driver-API program that times its own calls. It knows nothing of Cistern: tests/bench/run
// starts it on the simulated driver bare, under an empty hook and under the object.
#include <benchmark/benchmark.h>
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <vector>

namespace {

void check(CUresult result) {
  if (result != CUDA_SUCCESS) std::abort();
}

constexpr size_t kBytes = 4096;

void pair_among(benchmark::State& state, size_t live_bytes) {
  std::vector<CUdeviceptr> live(static_cast<size_t>(state.range(0)));
  for (CUdeviceptr& address : live) check(cuMemAlloc(&address, live_bytes));
  for (auto _ : state) {
    CUdeviceptr address = 0;
    check(cuMemAlloc(&address, kBytes));
    benchmark::DoNotOptimize(address);
    check(cuMemFree(address));
  }
  for (const CUdeviceptr address : live) check(cuMemFree(address));
}
void pair(benchmark::State& state) { pair_among(state, kBytes); }
BENCHMARK(pair)->Arg(10)->Arg(1000);

// With blocks of another size, so that a plan of pairs (planned.py) begins behind them.
void pair_beside(benchmark::State& state) { pair_among(state, kBytes + 512); }

// For callgrind: the difference of two lengths is the pairs alone.
BENCHMARK(pair)->Name("counted/pair")->Arg(1000)->Iterations(1000);
BENCHMARK(pair)->Name("counted/pair")->Arg(1000)->Iterations(11000);
BENCHMARK(pair_beside)->Name("counted/pair_beside")->Arg(1000)->Iterations(1000);
BENCHMARK(pair_beside)->Name("counted/pair_beside")->Arg(1000)->Iterations(11000);

// The calls of pairs whose blocks are used in between, so that each free has work before it. How
// long that takes on the device is SIMCUDA_LATENCY's to say. An iteration is a plan's 65 pairs, and
// begins with the device idle; the first pair is around the others, so that a plan's memory is in
// use beside each of them, as the pool's is. Only allocations and frees are timed.
void used_pairs(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPairs = 65;
  constexpr size_t kUsed = 512;
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<CUdeviceptr> live(1000);
  for (CUdeviceptr& address : live) check(cuMemAlloc(&address, kBytes + 512));
  for (auto _ : state) {
    Clock::duration in_calls{};
    const auto timed = [&in_calls](auto call) {
      const auto begin = Clock::now();
      check(call());
      in_calls += Clock::now() - begin;
    };
    CUdeviceptr addresses[kPairs];
    for (int i = 0; i < kPairs; ++i) {
      timed([&] { return cuMemAlloc(&addresses[i], bytes); });
      check(cuMemsetD32Async(addresses[i], 1, kUsed / 4, nullptr));
      if (i != 0) timed([&] { return cuMemFree(addresses[i]); });
    }
    timed([&] { return cuMemFree(addresses[0]); });
    check(cuCtxSynchronize());
    state.SetIterationTime(std::chrono::duration<double>(in_calls).count() / kPairs);
  }
  for (const CUdeviceptr address : live) check(cuMemFree(address));
}
BENCHMARK(used_pairs)->Arg(kBytes)->Iterations(300)->UseManualTime();
BENCHMARK(used_pairs)->Name("counted/used_pairs")->Arg(kBytes)->Iterations(20)->UseManualTime();
BENCHMARK(used_pairs)->Name("counted/used_pairs")->Arg(kBytes)->Iterations(120)->UseManualTime();
// Of planned_cells.
void cells(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t bytes : {512, 64 << 10, 4 << 20}) benchmark->Arg(bytes);
  benchmark->Name("counted/used_pairs")->UseManualTime();
}
BENCHMARK(used_pairs)->Apply(cells)->Iterations(4);
BENCHMARK(used_pairs)->Apply(cells)->Iterations(24);

// Work is submitted, with nothing freed since the last time. The driver refuses it at once: what is
// left is the way there.
void submit(benchmark::State& state) {
  for (auto _ : state) {
    CUresult code =
        cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, nullptr, nullptr);
    if (code == CUDA_SUCCESS) std::abort();
    benchmark::DoNotOptimize(code);
  }
}
BENCHMARK(submit);
BENCHMARK(submit)->Name("counted/submit")->Iterations(1000);
BENCHMARK(submit)->Name("counted/submit")->Iterations(11000);

// What communication libraries ask of every buffer they are given.
void ask(benchmark::State& state, CUpointer_attribute attribute) {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, static_cast<size_t>(state.range(0))));
  size_t answer = 0;
  for (auto _ : state) {
    check(cuPointerGetAttribute(&answer, attribute, address + 100));
    benchmark::DoNotOptimize(answer);
  }
  check(cuMemFree(address));
}
BENCHMARK_CAPTURE(ask, memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)->Arg(4096)->Arg(4 << 20);
BENCHMARK_CAPTURE(ask, range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE)->Arg(4096)->Arg(4 << 20);

void look_up_by_driver(benchmark::State& state) {
  void* function = nullptr;
  for (auto _ : state) {
    check(cuGetProcAddress("cuMemAlloc", &function, CUDA_VERSION, 0, nullptr));
    benchmark::DoNotOptimize(function);
  }
}
BENCHMARK(look_up_by_driver);

void look_up_by_dlsym(benchmark::State& state, const char* name) {
  for (auto _ : state) {
    void* function = dlsym(RTLD_DEFAULT, name);
    benchmark::DoNotOptimize(function);
  }
}
BENCHMARK_CAPTURE(look_up_by_dlsym, hook, "cuMemAlloc_v2");
BENCHMARK_CAPTURE(look_up_by_dlsym, other, "qsort");

}  // namespace

int main(int argc, char** argv) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(cuInit(0));
  check(cuDeviceGet(&device, 0));
  check(cuDevicePrimaryCtxRetain(&context, device));
  check(cuCtxSetCurrent(context));
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
