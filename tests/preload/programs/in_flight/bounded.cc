// SPDX-License-Identifier: Apache-2.0
// A host that runs ahead of the device is held back: what waits for its work stays bounded.
// Threads allocate a block, give it to a kernel that takes a while, and free it, without any
// synchronisation. How much the driver gave, and over how much memory the blocks lay, is compared
// with what is live at once.
//
//   bounded THREADS ROUNDS BLOCK_MB KERNEL_US CHUNK_MB [own]
//   bounded scattered LAG_US blocks that stay, between others that go; then a large one. The host
//                            lags so long behind a launch
//   bounded endless          a kernel that ends once the driver's free waits for it, and under a
//                            pool once all is freed
//
// CHUNK_MB: what a strategy may hold beyond, because it takes chunks of that size; 0 for whole
// blocks.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../driver_memory.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

std::mutex g_mutex;
Spread g_spread;

CUdeviceptr get(size_t bytes) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, bytes));
  const std::lock_guard lock(g_mutex);
  g_spread.add(block, bytes);
  return block;
}

void run_ahead(CUcontext context, const timed::Kernels& kernels, int rounds, size_t bytes,
               uint32_t kernel_us) {
  MUST(cuCtxSetCurrent(context));
  CUstream stream = timed::new_stream();
  for (int round = 0; round < rounds; ++round) {
    const CUdeviceptr block = get(bytes);
    MUST(timed::fill_words(kernels, stream, block, 64, 1, kernel_us));
    MUST(cuMemFree(block));
  }
}

// Bytes that may wait (DESIGN.md, Reclaim): 256 MiB, or 10 % of what is live if that is more.
size_t may_wait(size_t live) { return std::max(256 * kMiB, live / 10); }

// Bytes of whole blocks that may be idle.
size_t may_idle(size_t live_peak) { return std::max(64 * kMiB, live_peak / 8); }

void say_bounded(const char* what, size_t seen, size_t most) {
  std::printf("%s is bounded: %d\n", what, seen <= most);
  if (seen > most) std::printf("%zu MiB, at most %zu\n", seen / kMiB, most / kMiB);
}

// What stays and what goes take turns, so that a pool which never finds clean memory puts the
// former between the latter everywhere.
void scattered(const timed::Kernels& kernels, useconds_t lag_us) {
  constexpr size_t kStays = 20 * kMiB, kGoes = 48 * kMiB, kLarge = 1280 * kMiB;
  CUstream stream = timed::new_stream();
  std::vector<CUdeviceptr> stay;
  for (int round = 0; round < 60; ++round) {
    const CUdeviceptr goes = get(kGoes);
    MUST(timed::fill_words(kernels, stream, goes, 64, 1, 20'000));
    usleep(lag_us);
    stay.push_back(get(kStays));
    MUST(cuMemFree(goes));
  }
  MUST(cuCtxSynchronize());
  // Units move from address to address: then they are what was used.
  const size_t used = std::min(g_spread.bytes(), size_t{driver_memory().most});
  CUdeviceptr large = 0;
  std::printf("live %zu MiB, a block of %zu MiB: %d\n", stay.size() * kStays / kMiB, kLarge / kMiB,
              cuMemAlloc(&large, kLarge));
  // What stays in a hole of what goes leaves a rest that is too small for either; how often depends
  // on which work is done by then. Without clean memory it would be all, 4080 MiB.
  say_bounded("memory ever used", used, stay.size() * kStays + kGoes + 2 * may_wait(0));
}

// The work outlasts however long a pool holds back the free that makes too much wait.
void endless(const timed::Kernels& kernels) {
  constexpr size_t kBytes = 100 * kMiB;
  const char* preloaded = std::getenv("LD_PRELOAD");
  const bool pooled = preloaded != nullptr && std::strstr(preloaded, "libcistern") != nullptr;
  timed::Held held(kernels, timed::new_stream());
  std::atomic<bool> waits{false};
  std::thread ends([&] {
    while (!waits) usleep(100);
    held.end();
  });
  {
    std::optional<OnceThisWaits> driver_waits;
    if (!pooled) driver_waits.emplace(&waits);
    for (int i = 0; i < 3; ++i) MUST(cuMemFree(get(kBytes)));
  }
  waits = true;
  ends.join();
  MUST(cuCtxSynchronize());
  say_bounded("memory ever used", g_spread.bytes(),
              2 * kBytes + may_wait(kBytes) + may_idle(kBytes));
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  const CUcontext context = use_device(0);
  const timed::Kernels kernels;
  if (argc == 3 && std::strcmp(argv[1], "scattered") == 0) {
    scattered(kernels, static_cast<useconds_t>(std::atoi(argv[2])));
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "endless") == 0) {
    endless(kernels);
    return 0;
  }
  if (argc < 6) return 2;
  const auto threads = static_cast<size_t>(std::atoi(argv[1]));
  const size_t block = std::strtoull(argv[3], nullptr, 10) * kMiB;
  const size_t chunk = std::strtoull(argv[5], nullptr, 10) * kMiB;
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      run_ahead(context, kernels, std::atoi(argv[2]), block,
                static_cast<uint32_t>(std::atoi(argv[4])));
    });
  }
  for (std::thread& thread : running) thread.join();
  const bool own = argc > 6 && std::strcmp(argv[6], "own") == 0;
  const size_t live = threads * block;
  const size_t most = live + (own ? threads : 1) * may_wait(live) + threads * block + 2 * kMiB;
  say_bounded("memory ever used", g_spread.bytes(), most + (chunk == 0 ? may_idle(live) : 0));
  say_bounded("what the driver gave", driver_memory().most,
              chunk == 0 ? most + may_idle(live) : (most + chunk - 1) / chunk * chunk + chunk);
  MUST(cuCtxSynchronize());
  return 0;
}
