// SPDX-License-Identifier: Apache-2.0
//
// A free that holds the lock of its context while it waits (SIMCUDA_FREE=locks).
#include <unistd.h>

#include <atomic>
#include <thread>

#include "device_code.h"
#include "tests/catch.h"
#include "tests/preload/programs/watch_time.h"

namespace {

constexpr size_t kWords = 64;

void await_flag(void* flag) {
  while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
}

}  // namespace

TEST_CASE("while a free waits, other threads ask, and hand over nothing") {
  CHECK(in_child({{"SIMCUDA_FREE", "locks"}}, [] {
    const CUcontext context = start();
    CUstream stream = new_stream(), other = new_stream();
    const CUdeviceptr block = new_block(4096), words = new_block(4096);
    std::atomic<bool> go{false}, freed{false};
    EXPECT_OK(cuLaunchHostFunc(stream, await_flag, &go));
    std::thread freeing([&] {
      EXPECT_OK(cuCtxSetCurrent(context));
      EXPECT_OK(cuMemFree(block));
      freed = true;
    });
    // It sleeps in no launch but the one that waits for the lock.
    std::atomic<pid_t> launcher{0};
    std::thread launching([&] {
      EXPECT_OK(cuCtxSetCurrent(context));
      fill_words(other, words, kWords, 1);
      launcher = gettid();
      while (!freed) fill_words(other, words, kWords, 1);
    });
    await_sleep(launcher);
    EXPECT(!freed);
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CUdeviceptr ordered = 0;
    EXPECT_OK(cuMemAllocAsync(&ordered, 4096, other));
    go = true;
    freeing.join();
    launching.join();
    EXPECT_OK(cuCtxSynchronize());
  }));
}
