// SPDX-License-Identifier: Apache-2.0
// What is left of the idle memory of a program that takes a block of 1 GiB in each step, uses it
// and frees it: then it rests.
//
//   gpu_kept             with cuMemAlloc and cuMemFree
//   gpu_kept pool BYTES  with cuMemAllocAsync and cuMemFreeAsync, and a synchronisation in each
//   step
//
// NVML tells how much of the device the process has, since cuMemGetInfo counts as free what Cistern
// keeps. Prints one line of JSON for each figure, in MiB more than the device had taken before; -1
// where NVML is missing. GPU_CHECK_SECOND_MS of the environment shortens the seconds of the rest,
// for a test that reads only the names.

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "../preload/programs/driver_codes.h"
#include "../preload/programs/timed_code.h"
#include "limit.h"

namespace {

constexpr size_t kBytes = 1024 * kMiB, kWords = 1024;
constexpr int kSteps = 50, kPoolSteps = 1000;

// NVML, whose header may be missing.
class Management {
 public:
  Management() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == nullptr) return;
    const auto find = [library]<typename F>(F& function, const char* name) {
      function = reinterpret_cast<F>(dlsym(library, name));
      return function != nullptr;
    };
    int (*begin)() = nullptr;
    int (*by_bus)(const char*, void**) = nullptr;
    if (!find(begin, "nvmlInit_v2") || !find(by_bus, "nvmlDeviceGetHandleByPciBusId_v2") ||
        !find(memory_, "nvmlDeviceGetMemoryInfo")) {
      return;
    }
    char bus[32] = "";
    MUST(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    if (begin() != 0 || by_bus(bus, &device_) != 0) device_ = nullptr;
  }

  double used_mib() const {
    unsigned long long total_free_used[3] = {};
    if (device_ == nullptr || memory_(device_, total_free_used) != 0) return -1;
    return static_cast<double>(total_free_used[2]) / static_cast<double>(kMiB);
  }
  bool there() const { return device_ != nullptr; }

 private:
  int (*memory_)(void*, unsigned long long*) = nullptr;
  void* device_ = nullptr;
};

void figure(const char* name, double value) {
  std::printf("{\"%s\": %.9g}\n", name, value);
  std::fflush(stdout);
}

void step(const timed::Worker& at) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, kBytes));
  MUST(timed::fill_words(at.kernels, at.stream, block, kWords, 1, 0));
  MUST(cuMemFree(block));
}

// A frame of a program that uses the driver's own pool.
void pool_step(const timed::Worker& at, size_t bytes) {
  CUdeviceptr blocks[2] = {};
  for (CUdeviceptr& block : blocks) {
    MUST(cuMemAllocAsync(&block, bytes, at.stream));
    MUST(timed::fill_words(at.kernels, at.stream, block, kWords, 1, 0));
  }
  for (const CUdeviceptr block : blocks) MUST(cuMemFreeAsync(block, at.stream));
  MUST(cuStreamSynchronize(at.stream));
}

}  // namespace

int main(int argc, char** argv) {
  using std::chrono::milliseconds;
  end_in_time();
  const timed::Worker at(use_device(0));
  const Management management;
  CUdeviceptr word = 0;
  MUST(cuMemAlloc(&word, 4096));
  MUST(timed::fill_words(at.kernels, at.stream, word, 1, 1, 0));  // loads the kernel
  MUST(cuCtxSynchronize());
  const double before = management.used_mib();
  const auto tell = [&](const char* name) {
    figure(name, management.there() ? management.used_mib() - before : -1);
  };
  const auto start = std::chrono::steady_clock::now();
  const size_t pool_bytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const int steps = pool_bytes != 0 ? kPoolSteps : kSteps;
  for (int i = 0; i < steps; ++i) pool_bytes != 0 ? pool_step(at, pool_bytes) : step(at);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  figure("us_a_step", took.count() / steps);
  tell("mib_at_once");
  const char* second_ms = std::getenv("GPU_CHECK_SECOND_MS");  // a test need not wait
  const milliseconds second(second_ms == nullptr ? 1000 : std::atoi(second_ms));
  for (const char* name : {"mib_after_1_s", "mib_after_2_s", "mib_after_3_s"}) {
    std::this_thread::sleep_for(second);
    tell(name);
  }
  return 0;
}
