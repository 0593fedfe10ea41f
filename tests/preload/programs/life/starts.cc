// SPDX-License-Identifier: Apache-2.0
// Ways to start: by threads at once, after exec and in forked children.
// The first argument says how many threads begin with CUDA at the same moment, the second, if any,
// whether the process goes on as another program ("exec") or starts one ("fork"), after it has used
// CUDA itself.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

std::atomic<int> g_wrong{0};

void expect(CUresult code) { g_wrong += code == CUDA_SUCCESS ? 0 : 1; }

// Every block is written and read: no other thread may have it.
void begin(unsigned char own) {
  CUcontext context = nullptr;
  CUdeviceptr blocks[20];
  expect(cuInit(0));
  expect(cuDevicePrimaryCtxRetain(&context, 0));
  expect(cuCtxSetCurrent(context));
  for (int round = 0; round < 5; ++round) {
    for (CUdeviceptr& block : blocks) {
      expect(cuMemAlloc(&block, 3000));
      expect(cuMemsetD8(block, own, 3000));
    }
    for (const CUdeviceptr block : blocks) {
      unsigned char seen = 0;
      expect(cuMemcpyDtoH(&seen, block + 2999, 1));
      g_wrong += seen == own ? 0 : 1;
      expect(cuMemFree(block));
    }
  }
}

void begin_together(int count) {
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      ++ready;
      while (ready < count) std::this_thread::yield();
      begin(static_cast<unsigned char>(i + 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%d threads: %d wrong\n", count, g_wrong.load());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  begin_together(argc > 1 ? std::atoi(argv[1]) : 1);
  if (argc <= 2) return 0;
  if (std::strcmp(argv[2], "exec") == 0) return execl(argv[0], argv[0], "2", nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(execl(argv[0], argv[0], "2", nullptr));
  int status = -1;
  waitpid(child, &status, 0);
  std::printf("child ended with %d\n", status);
  return 0;
}
