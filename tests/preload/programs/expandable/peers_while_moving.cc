// SPDX-License-Identifier: Apache-2.0
// Peer access begins and ends while other threads make memory move under work in flight.
// Blocks, new ones each time, are filled by their own device, read by kernels of the other one with
// access, and copied with it and without.

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"

namespace {

using namespace timed;

constexpr int kRounds = 150;
constexpr uint32_t kDelayUs = 50, kMeanwhile = 4;
constexpr size_t kUnit = 2 * kMiB;

std::atomic<bool> g_ended{false};

CUcontext created(CUdevice device) {
  CUcontext context = nullptr;
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  return context;
}

Worker worker_in(CUcontext context) {
  MUST(cuCtxSetCurrent(context));
  return Worker(context);
}

// Blocks of changing sizes between others that stay, so that what is free seldom lies side by side;
// a kernel is at work on each when it is freed.
void churn(CUcontext context, unsigned seed) {
  const Worker worker = worker_in(context);
  std::mt19937 random(seed);
  std::vector<CUdeviceptr> blocks(16, 0);
  for (int i = 0; i < kRounds || !g_ended; ++i) {
    CUdeviceptr& block = blocks[random() % blocks.size()];
    if (block != 0) MUST(cuMemFree(block));
    MUST(cuMemAlloc(&block, (1 + random() % 5) * kUnit - random() % 4096));
    MUST(fill_words(worker.kernels, worker.stream, block, /*count=*/1000, seed, kDelayUs));
  }
  for (const CUdeviceptr block : blocks) {
    if (block != 0) MUST(cuMemFree(block));
  }
}

class Reader {
 public:
  Reader(CUcontext owner, CUcontext other) : owner_(worker_in(owner)), own_(worker_in(other)) {
    own_.use();
    MUST(cuMemAlloc(&mine_, kWords * sizeof(uint32_t)));
    MUST(cuMemAlloc(&total_, kTotalBytes));
  }

  // Blocks from before the access begins and from while it lasts: how many of the readings were
  // wrong.
  int round(uint32_t seed) {
    const CUdeviceptr before = filled(seed);
    own_.use();
    MUST(cuCtxEnablePeerAccess(owner_.context, 0));
    int wrong = read_by_kernel(before, seed) + copy(before, seed);
    for (uint32_t i = 1; i <= kMeanwhile; ++i) {
      const CUdeviceptr block = filled(seed + i);
      wrong += read_by_kernel(block, seed + i);
      owner_.use();
      MUST(cuMemFree(block));
    }
    own_.use();
    MUST(cuCtxDisablePeerAccess(owner_.context));
    wrong += copy(before, seed);
    owner_.use();
    MUST(cuMemFree(before));
    return wrong;
  }
  static constexpr int kReadings = 3 + static_cast<int>(kMeanwhile);

 private:
  static constexpr uint32_t kWords = 1000;
  static constexpr size_t kTotalBytes = 2 * sizeof(uint64_t);

  static uint64_t sum_from(uint64_t seed) { return kWords * seed + kWords * (kWords - 1) / 2; }

  CUdeviceptr filled(uint32_t seed) {
    CUdeviceptr block = 0;
    owner_.use();
    MUST(cuMemAlloc(&block, seed % 5 * kUnit + kWords * sizeof(uint32_t)));
    MUST(fill_words(owner_.kernels, owner_.stream, block, kWords, seed, kDelayUs));
    MUST(cuStreamSynchronize(owner_.stream));
    return block;
  }
  // These two: 1 if what the other device finds is wrong.
  int read_by_kernel(CUdeviceptr block, uint32_t seed) {
    uint64_t total = 0;
    own_.use();
    MUST(cuMemsetD8Async(total_, 0, kTotalBytes, own_.stream));
    MUST(sum_words(own_.kernels, own_.stream, block, kWords, total_, kDelayUs));
    MUST(cuStreamSynchronize(own_.stream));
    MUST(cuMemcpyDtoH(&total, total_, sizeof total));
    return total == sum_from(seed) ? 0 : 1;
  }
  int copy(CUdeviceptr block, uint32_t seed) {
    uint32_t last = 0;
    own_.use();
    MUST(cuMemsetD8Async(mine_, 0, kWords * sizeof last, own_.stream));
    MUST(cuMemcpyPeerAsync(mine_, own_.context, block, owner_.context, kWords * sizeof last,
                           own_.stream));
    MUST(cuStreamSynchronize(own_.stream));
    MUST(cuMemcpyDtoH(&last, mine_ + (kWords - 1) * sizeof last, sizeof last));
    return last == seed + kWords - 1 ? 0 : 1;
  }

  const Worker owner_, own_;
  CUdeviceptr mine_ = 0, total_ = 0;
};

}  // namespace

int main() {
  SAY(cuInit(0));
  const CUcontext owner = created(0), other = created(1);
  std::thread first(churn, owner, 1u), second(churn, owner, 2u);
  int wrong = 0;
  {
    Reader reader(owner, other);
    for (uint32_t i = 0; i < kRounds; ++i) wrong += reader.round(i + 1);
  }
  g_ended = true;
  first.join();
  second.join();
  std::printf("wrong readings: %d of %d\n", wrong, Reader::kReadings * kRounds);
  for (const CUcontext context : {other, owner}) SAY(cuCtxDestroy(context));
  return 0;
}
