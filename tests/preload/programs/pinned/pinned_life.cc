// SPDX-License-Identifier: Apache-2.0
// Pinned memory ends with its context, and pools of pinned memory survive whatever else ends.
//
//   pinned_life contexts ROUNDS [idle] | reset ROUNDS [idle] | fork | exit | beside ROUNDS
//
// idle: the context ends when what was freed has just become due to go back.
// contexts: made and destroyed with blocks live, freed and under way. reset: the primary context.
// fork: the child may not use the parent's CUDA, but ends well. exit: with work under way.
// beside: a loop that pins and frees beside a kernel of another device, which ends behind it.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "../driver_codes.h"
#include "../test_clock.h"
#include "../timed_code.h"

namespace {

constexpr size_t kSizes[] = {100, 5000, 70'000, 3 * kMiB};

void* pin(size_t bytes, unsigned flags = 0) {
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, bytes, flags));
  std::memset(memory, 1, bytes);
  return memory;
}

// Some blocks stay live, some are freed under a copy.
void use_pinned_memory() {
  CUstream stream = timed::new_stream();
  CUdeviceptr device = 0;
  MUST(cuMemAlloc(&device, kSizes[3]));
  for (const unsigned flags : {0u, unsigned{CU_MEMHOSTALLOC_WRITECOMBINED}}) {
    for (const size_t bytes : kSizes) {
      pin(bytes, flags);
      void* freed = pin(bytes, flags);
      MUST(cuMemcpyHtoDAsync(device, freed, bytes, stream));
      MUST(cuMemFreeHost(freed));
    }
  }
}

bool g_idle = false;

void pass_time() {
  if (!g_idle) return;
  test_clock::live_through(/*ms=*/40, /*steps=*/4);
  test_clock::move_ms(100);
}

void contexts(int rounds) {
  use_device(0);
  void* of_first = pin(5000);
  for (int i = 0; i < rounds; ++i) {
    CUcontext context = nullptr;
    MUST(cuCtxCreate(&context, nullptr, 0, 0));
    use_pinned_memory();
    std::thread([=] {
      MUST(cuCtxSetCurrent(context));
      use_pinned_memory();
    }).join();
    pass_time();
    MUST(cuCtxDestroy(context));
  }
  use_device(0);
  MUST(cuMemFreeHost(of_first));
}

void resets(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    use_device(0);
    use_pinned_memory();
    pass_time();
    MUST(cuDevicePrimaryCtxReset(0));
    void* memory = nullptr;
    std::printf("without a context: %d\n", cuMemHostAlloc(&memory, 5000, 0));
  }
}

void forked() {
  use_device(0);
  void* mine = pin(5000);
  use_pinned_memory();
  const pid_t child = fork();
  if (child == 0) {
    void* memory = nullptr;
    std::_Exit(cuMemHostAlloc(&memory, 5000, 0) != CUDA_SUCCESS ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("the child got none: %d\n", WIFEXITED(status) && WEXITSTATUS(status) == 0);
  MUST(cuMemFreeHost(mine));
}

void at_exit() {
  use_device(0);
  const timed::Kernels kernels;
  CUstream stream = timed::new_stream();
  auto* block = static_cast<uint32_t*>(pin(5000));
  CUdeviceptr address = 0;
  MUST(cuMemHostGetDevicePointer(&address, block, 0));
  MUST(timed::fill_words(kernels, stream, address, 1250, 1, 20'000));
  MUST(cuMemFreeHost(pin(70'000)));
}

void beside(int rounds) {
  CUcontext busy = use_device(1);
  const timed::Kernels kernels;
  timed::Held held(kernels, timed::new_stream());
  use_device(0);
  CUstream stream = timed::new_stream();
  CUdeviceptr device = 0;
  MUST(cuMemAlloc(&device, kSizes[3]));
  for (int i = 0; i < rounds; ++i) {
    void* block = pin(kSizes[3]);
    MUST(cuMemcpyHtoDAsync(device, block, kSizes[3], stream));
    MUST(cuCtxSynchronize());
    MUST(cuMemFreeHost(block));
  }
  held.end();
  MUST(cuCtxSetCurrent(busy));
  MUST(cuCtxSynchronize());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 1;
  g_idle = argc > 3 && std::strcmp(argv[3], "idle") == 0;
  if (std::strcmp(argv[1], "contexts") == 0) contexts(rounds);
  if (std::strcmp(argv[1], "reset") == 0) resets(rounds);
  if (std::strcmp(argv[1], "fork") == 0) forked();
  if (std::strcmp(argv[1], "exit") == 0) at_exit();
  if (std::strcmp(argv[1], "beside") == 0) beside(rounds);
  std::printf("done\n");
  return 0;
}
