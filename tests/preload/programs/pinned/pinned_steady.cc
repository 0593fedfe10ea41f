// SPDX-License-Identifier: Apache-2.0
// A loop that pins a buffer, copies through it and frees it needs the driver for none of that.
// Each thread pins, copies there and back, checks, and frees; four sizes take turns.
//
//   pinned_steady synchronised|idling|stream ROUNDS [THREADS]
//
// synchronised: the context is waited for after each round; stream: just the stream. idling: as
// synchronised, and time passes after each ten rounds.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../test_clock.h"
#include "../timed_code.h"

namespace {

constexpr size_t kLargest = 3 * kMiB;

bool g_idling = false;

size_t size_of(uint32_t round) { return 1000 + round % 4 * (kLargest - 1000) / 3; }

size_t run(CUcontext context, uint32_t rounds, bool whole_context, uint32_t thread) {
  MUST(cuCtxSetCurrent(context));
  CUstream stream = timed::new_stream();
  CUdeviceptr device = 0;
  MUST(cuMemAlloc(&device, kLargest));
  size_t wrong = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    const size_t bytes = size_of(round);
    void *out = nullptr, *in = nullptr;
    MUST(cuMemHostAlloc(&out, bytes, 0));
    MUST(cuMemAllocHost(&in, bytes));
    std::memset(out, static_cast<int>(round + thread), bytes);
    std::memset(in, 0, bytes);
    MUST(cuMemcpyHtoDAsync(device, out, bytes, stream));
    MUST(cuMemcpyDtoHAsync(in, device, bytes, stream));
    MUST(whole_context ? cuCtxSynchronize() : cuStreamSynchronize(stream));
    wrong += std::memcmp(out, in, bytes) != 0;
    MUST(cuMemFreeHost(out));
    MUST(cuMemFreeHost(in));
    if (g_idling && round % 10 == 9) test_clock::live_through(/*ms=*/40, /*steps=*/4);
  }
  MUST(cuMemFree(device));
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  g_idling = std::strcmp(argv[1], "idling") == 0;
  const bool whole_context = g_idling || std::strcmp(argv[1], "synchronised") == 0;
  const auto rounds = static_cast<uint32_t>(std::atoi(argv[2]));
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  const CUcontext context = use_device(0);
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back(
        [&, i] { wrong += run(context, rounds, whole_context, static_cast<uint32_t>(i)); });
  }
  for (std::thread& thread : running) thread.join();
  std::printf("wrong: %zu\n", wrong.load());
  return wrong == 0 ? 0 : 1;
}
