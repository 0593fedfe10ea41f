// SPDX-License-Identifier: Apache-2.0
// A free waits for what the host sees, also if a context was seen empty while it was handed over.
// The work of several threads is under way. In the midst of a launch that writes pinned memory
// another thread waits for the context, and then the launch is the only work there is. The
// simulated device calls the program back in the midst of it: this needs the simulator.

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "../../../sim/include/simcuda/kernels.h"
#include "../watch_time.h"
#include "debts_workplace.h"

namespace {

std::atomic<bool> midway{false}, waited{false};

void await(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

uint32_t* words_of(const SimcudaLaunch* launch) {
  uint32_t* words = nullptr;
  std::memcpy(&words, launch->params[0], sizeof words);
  return words;
}

// Called by the launch itself.
void be_overtaken(const SimcudaLaunch* launch, SimcudaRangeFn add, void* sink) {
  midway = true;
  await(waited);
  add(sink, {reinterpret_cast<uintptr_t>(words_of(launch)), kBytes, SIMCUDA_WRITES});
}

void write_words(const SimcudaLaunch* launch) {
  __atomic_store_n(words_of(launch), 1, __ATOMIC_RELEASE);
}

CUfunction overtaken_kernel() {
  static constexpr uint32_t kSizes[] = {sizeof(CUdeviceptr)};
  static constexpr SimcudaKernel kKernel{
      "overtaken", 1,
      kSizes,      be_overtaken,
      write_words, [](const SimcudaLaunch*) -> uint64_t {
        return uint64_t{kDelayUs} * 1000; }};
  void* add = dlsym(RTLD_DEFAULT, "simcuda_add_kernels");
  reinterpret_cast<decltype(simcuda_add_kernels)*>(add)(&kKernel, 1);
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  MUST(cuModuleLoadData(&module, timed::kImage));
  MUST(cuModuleGetFunction(&kernel, module, "overtaken"));
  return kernel;
}

void work(const Workplace& at, CUstream stream, CUdeviceptr words) {
  MUST(timed::fill_words(at.kernels, stream, words, kWords, 1, kDelayUs));
}

}  // namespace

int main() {
  end_if_it_hangs();
  CUcontext context = use_device(0);
  CUfunction kernel = overtaken_kernel();
  const Workplace at;
  uint32_t* page = new_pinned();
  *page = 0;
  MUST(cuCtxSynchronize());
  std::atomic<bool> begun{false};
  std::thread other([&] {
    MUST(cuCtxSetCurrent(context));
    work(at, at.second, at.copy);
    begun = true;
    await(midway);
    MUST(cuCtxSynchronize());
    waited = true;
  });
  await(begun);
  for (int i = 0; i < 4; ++i) work(at, at.first, at.words);
  const CUdeviceptr block = new_block(1000);
  CUdeviceptr words = reinterpret_cast<CUdeviceptr>(page);
  void* parameters[] = {&words};
  MUST(timed::launch(kernel, at.first, parameters));
  MUST(cuMemFree(block));
  say_if("written behind the free", __atomic_load_n(page, __ATOMIC_ACQUIRE) == 1);
  other.join();
  return 0;
}
