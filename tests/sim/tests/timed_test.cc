// SPDX-License-Identifier: Apache-2.0
//
// Kernels that take time, kernels that wait for the host, and threads that are cancelled in a call.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "device_code.h"
#include "tests/catch.h"
#include "tests/sim/include/simcuda/clock.h"
#include "tests/sim/include/simcuda/watch.h"

namespace {

constexpr size_t kWords = 16;

// One launch of slow_fill_words.
void slow_fill(CUfunction function, CUstream stream, CUdeviceptr words, unsigned delay_us) {
  size_t count = kWords;
  unsigned seed = 1;
  void* params[] = {&words, &count, &seed, &delay_us};
  EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
}

void hold(CUfunction function, CUstream stream, CUdeviceptr words, CUdeviceptr go) {
  size_t count = kWords;
  unsigned seed = 5;
  void* params[] = {&words, &count, &seed, &go};
  EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
}

struct HostWord {
  HostWord() {
    void* memory = nullptr;
    EXPECT_OK(cuMemHostAlloc(&memory, sizeof(uint32_t), 0));
    word = static_cast<uint32_t*>(memory);
    *word = 0;
  }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(word); }
  void set() const { __atomic_store_n(word, 1, __ATOMIC_RELEASE); }
  uint32_t* word;
};

void wait_until(void* flag) {
  while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a row of timed kernels takes the sum of their times") {
  const std::string library = kernel_library();
  REQUIRE(in_child({{"SIMCUDA_CLOCK", "virtual"},
                    {"SIMCUDA_SCHEDULE", "seed:1"},
                    {"SIMCUDA_KERNELS", library.c_str()}},
                   [] {
                     start();
                     const CUfunction function = kernel("_Z15slow_fill_wordsPjmjj");
                     CUstream one = new_stream(), two = new_stream();
                     const CUdeviceptr block = new_block(4096);
                     const int64_t begin = simcuda_clock_ns();
                     for (unsigned i = 0; i < 100; ++i) {
                       slow_fill(function, one, block, 5);
                       slow_fill(function, two, block + 2048, 7);
                     }
                     EXPECT_OK(cuCtxSynchronize());
                     EXPECT(simcuda_clock_ns() - begin == 700'000);
                   }));
}

TEST_CASE("short kernels in a row are as long as they say, however late their thread wakes up") {
  const std::string library = kernel_library();
  REQUIRE(in_child({{"SIMCUDA_KERNELS", library.c_str()}}, [] {
    start();
    const CUfunction function = kernel("_Z15slow_fill_wordsPjmjj");
    CUstream stream = new_stream();
    const CUdeviceptr block = new_block(4096);
    test_clock_stop();
    for (unsigned i = 0; i < 20'000; ++i) slow_fill(function, stream, block, 20);
    test_clock_move(399'999'999);
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    test_clock_move(1);
    EXPECT_OK(cuCtxSynchronize());  // or it waits for ever
  }));
}

TEST_CASE("a kernel that waits for a word of the host ends when that is set") {
  const std::string library = kernel_library();
  REQUIRE(in_child({{"SIMCUDA_KERNELS", library.c_str()}, {"SIMCUDA_RACES", "report"}}, [] {
    start();
    const HostWord go;
    CUstream stream = new_stream();
    const CUdeviceptr block = new_block(4096);
    hold(kernel("_Z10hold_wordsPjmjPVKj"), stream, block, go.address());
    // For work that does not wait; a slow one could only go unnoticed.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    go.set();
    uint32_t words[kWords];
    EXPECT_OK(cuMemcpyDtoHAsync(words, block, sizeof words, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT(words[kWords - 1] == 5 + kWords - 1);
    EXPECT(simcuda_findings(SIMCUDA_ALL_FINDINGS) == 0);
  }));
}

TEST_CASE("a thread that is cancelled in a call ends after it") {
  for (const char* trace : {"", "/dev/null"}) {
    REQUIRE(in_child({{"SIMCUDA_TRACE", trace}}, [] {
      const CUcontext context = start();
      CUstream stream = new_stream();
      std::atomic<bool> go{false}, waits{false}, came_back{false}, went_on{false};
      EXPECT_OK(cuLaunchHostFunc(stream, wait_until, &go));
      std::thread waiter([&] {
        EXPECT_OK(cuCtxSetCurrent(context));
        waits = true;
        const CUresult code = cuStreamSynchronize(stream);
        came_back = code == CUDA_SUCCESS;
        pthread_testcancel();
        went_on = true;
      });
      while (!waits) std::this_thread::yield();
      // It comes into the call, or is cancelled right before; then it is to end after it, too.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT(pthread_cancel(waiter.native_handle()) == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT(!came_back);
      go = true;
      waiter.join();
      EXPECT(came_back);
      EXPECT(!went_on);
      EXPECT_OK(cuCtxSynchronize());
    }));
  }
}
