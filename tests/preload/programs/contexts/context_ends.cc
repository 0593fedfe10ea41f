// SPDX-License-Identifier: Apache-2.0
// Contexts released, reset and destroyed under threads that use them, or have them current.
// Released to zero and retained again, reset while another thread allocates, destroyed while frees
// are in flight and while they are current elsewhere; and threads that have none.

#include <atomic>
#include <functional>
#include <initializer_list>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr size_t kSmall = 3000, kLarge = 3 * kMiB;

void released_to_zero() {
  CUcontext context;
  for (int i = 0; i < 3; ++i) {
    CUdeviceptr small = 0, large = 0;
    use_device(0);
    SAY(cuDevicePrimaryCtxRetain(&context, 0));
    SAY(cuMemAlloc(&small, kSmall));
    SAY(cuMemAlloc(&large, kLarge));
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuMemFree(small));
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuMemAlloc(&small, kSmall));
    SAY(cuMemFree(large));
    use_device(0);
    SAY(cuMemFree(large));
    allocate_and_free(10, kSmall);
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuCtxSetCurrent(nullptr));
  }
}

void say_without(CUdeviceptr held) {
  CUdeviceptr block = 0;
  size_t bytes, total;
  SAY(cuMemAlloc(&block, kSmall));
  SAY(cuMemFree(held));
  SAY(cuMemFree(held + 8));
  SAY(cuMemGetAddressRange(&block, &bytes, held));
  SAY(cuMemGetInfo(&bytes, &total));
  SAY(cuCtxSynchronize());
}

// A context destroyed under a thread that has it current; blocks of another one are freed there.
void destroyed_elsewhere() {
  CUcontext primary = use_device(0), created;
  CUdeviceptr held = 0, lost = 0;
  SAY(cuMemAlloc(&held, kSmall));
  SAY(cuCtxCreate(&created, nullptr, 0, 0));
  SAY(cuMemAlloc(&lost, kLarge));
  std::thread([=] {
    SAY(cuCtxSetCurrent(created));
    std::thread([=] { SAY(cuCtxDestroy(created)); }).join();
    say_without(held);
    say_without(lost);
  }).join();
  std::thread([=] { say_without(held); }).join();
  SAY(cuCtxSetCurrent(primary));
  SAY(cuMemFree(held));
  SAY(cuMemFree(lost));
  allocate_and_free(100, kSmall);
  SAY(cuDevicePrimaryCtxRelease(0));
  SAY(cuCtxSetCurrent(nullptr));
}

// Which calls still succeed is chance; what matters is that each ends, with a code of the driver's,
// and that the next round works.
void race(const char* name, const std::function<CUcontext()>& begin,
          const std::function<void(CUcontext)>& end) {
  for (int round = 0; round < 30; ++round) {
    CUcontext context = begin();
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        cuCtxSetCurrent(context);
        ++started;
        for (int k = 0; k < 200; ++k) {
          CUdeviceptr block = 0;
          if (cuMemAlloc(&block, (k + i) % 3 == 0 ? kLarge : kSmall) == CUDA_SUCCESS) {
            cuMemFree(block);
          }
        }
      });
    }
    while (started < 3) std::this_thread::yield();
    end(context);
    for (std::thread& thread : threads) thread.join();
  }
  use_device(0);
  std::printf("%s: ", name);
  allocate_and_free(100, kLarge);
  SAY(cuDevicePrimaryCtxReset(0));
  SAY(cuCtxSetCurrent(nullptr));
}

CUcontext create() {
  CUcontext context, popped;
  cuCtxCreate(&context, nullptr, 0, 0);
  cuCtxPopCurrent(&popped);
  return context;
}

}  // namespace

int main() {
  released_to_zero();
  destroyed_elsewhere();
  race("destroyed", create, [](CUcontext context) { cuCtxDestroy(context); });
  race(
      "reset", [] { return use_device(0); }, [](CUcontext) { cuDevicePrimaryCtxReset(0); });
  return 0;
}
