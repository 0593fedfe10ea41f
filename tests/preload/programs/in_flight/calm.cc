// SPDX-License-Identifier: Apache-2.0
// Many threads that allocate and free under short kernels are no slower than by the driver alone.
//
//   calm THREADS ROUNDS BLOCK_KB KERNEL_US

#include <cstdlib>
#include <thread>
#include <vector>

#include "../check.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

void work(CUcontext context, const timed::Kernels& kernels, unsigned number, int rounds,
          size_t most_kb, uint32_t kernel_us) {
  MUST(cuCtxSetCurrent(context));
  CUstream stream = timed::new_stream();
  Random random(number);
  for (int round = 0; round < rounds; ++round) {
    const size_t bytes = size_t{1 + random.below(static_cast<unsigned>(most_kb))} << 10;
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, bytes));
    MUST(timed::fill_words(kernels, stream, block, 64, number, kernel_us));
    MUST(cuMemFree(block));
  }
  MUST(cuStreamSynchronize(stream));
  MUST(cuStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  end_if_it_hangs();
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  const timed::Kernels kernels;
  std::vector<std::thread> threads;
  for (int i = 0; i < std::atoi(argv[1]); ++i) {
    threads.emplace_back(work, context, std::cref(kernels), static_cast<unsigned>(i),
                         std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10),
                         static_cast<uint32_t>(std::atoi(argv[4])));
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("done\n");
  return 0;
}
