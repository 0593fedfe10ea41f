// SPDX-License-Identifier: Apache-2.0
// Blocks of a full device are shared as any, and freed are free, whoever has them open still.
// Rounds of: all there is is allocated, as much as can be exported and opened; freed by the owner
// and allocated anew while the importer has it open; closed there. The importer's own device is as
// full. The argument: KiB of a block.

#include <algorithm>
#include <vector>

#include "../timed_code.h"
#include "../watch_time.h"
#include "processes.h"

namespace {

constexpr size_t kMost = 64;  // that are exported
constexpr int kRounds = 3;

struct Order {
  size_t count, bytes;
  CUipcMemHandle handles[kMost];
};

std::vector<CUdeviceptr> take_all(size_t bytes) {
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr block = 0;
  while (cuMemAlloc(&block, bytes) == CUDA_SUCCESS) blocks.push_back(block);
  return blocks;
}

void free_all(std::vector<CUdeviceptr>* blocks) {
  for (const CUdeviceptr block : *blocks) MUST(cuMemFree(block));
  blocks->clear();
}

// The owner has freed them by then, if it says so.
int open_after_free(const Order& order) {
  int told = 0;
  for (size_t i = 0; i < order.count; ++i) {
    CUdeviceptr block = 0;
    const CUresult code =
        cuIpcOpenMemHandle(&block, order.handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (code == CUDA_SUCCESS) MUST(cuIpcCloseMemHandle(block));
    told += code == CUDA_SUCCESS || code == CUDA_ERROR_INVALID_VALUE;
  }
  return static_cast<int>(order.count) - told;
}

int import(const Peer& owner) {
  end_if_it_hangs();
  use_device(0);
  std::vector<CUdeviceptr> own = take_all(kMiB), open;
  Order order;
  while (owner.hear(&order)) {
    int wrong = 0;
    for (size_t i = 0; i < order.count; ++i) {
      unsigned holds = 0;
      CUdeviceptr block = 0;
      wrong += cuIpcOpenMemHandle(&block, order.handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
               CUDA_SUCCESS;
      wrong += cuMemcpyDtoH(&holds, block + order.bytes - 4, 4) != CUDA_SUCCESS || holds != 70 + i;
      open.push_back(block);
    }
    owner.tell(wrong);
    owner.must_hear<int>();
    wrong = open_after_free(order);
    for (const CUdeviceptr block : open) wrong += cuIpcCloseMemHandle(block) != CUDA_SUCCESS;
    open.clear();
    owner.tell(wrong);
  }
  free_all(&own);
  return 0;
}

int share_all(const Peer& importer, const std::vector<CUdeviceptr>& blocks, size_t bytes) {
  Order order{std::min(blocks.size(), kMost), bytes, {}};
  for (size_t i = 0; i < order.count; ++i) {
    MUST(cuMemsetD32(blocks[i], 70 + static_cast<unsigned>(i), bytes / 4));
    MUST(cuIpcGetMemHandle(&order.handles[i], blocks[i]));
  }
  MUST(cuCtxSynchronize());
  importer.tell(order);
  return importer.must_hear<int>();
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words));
  if (count < 2) return 1;
  const size_t bytes = static_cast<size_t>(std::atoi(words[1])) * 1024;
  const Peer importer(words[0], "import");
  end_if_it_hangs();
  use_device(0);
  const size_t free_before = free_memory();
  for (int round = 0; round < kRounds; ++round) {
    std::vector<CUdeviceptr> blocks = take_all(bytes), again;
    const size_t had = blocks.size();
    std::printf("had some: %d, little else: %d\n", had != 0, free_memory() < bytes + kMiB);
    std::printf("wrong while full: %d\n", share_all(importer, blocks, bytes));
    free_all(&blocks);
    std::printf("told free: %d\n", free_memory() + kMiB >= free_before);
    again = take_all(bytes);
    std::printf("as many as before: %d\n", again.size() == had);
    importer.tell(0);
    std::printf("wrong after the free: %d\n", importer.must_hear<int>());
    free_all(&again);
    std::printf("told free: %d\n", free_memory() + kMiB >= free_before);
  }
  std::printf("importer ended with %d\n", importer.end());
  return 0;
}
