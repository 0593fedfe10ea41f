// SPDX-License-Identifier: Apache-2.0
// Many processes open blocks of one at the same time, with several threads each.
// Every thread opens and closes the blocks in an order of its own, and sees what they hold; the
// owner allocates, exports and frees others meanwhile. Arguments: processes, threads, rounds, and
// how many more threads of each importer allocate and free meanwhile.

#include <atomic>
#include <thread>
#include <vector>

#include "processes.h"

namespace {

constexpr int kBlocks = 8;
constexpr size_t kBytes = 100'000;

struct Work {
  CUipcMemHandle handles[kBlocks];
  int threads, rounds, others;
};

int look(const Work& work, int thread, CUcontext context) {
  int wrong = 0;
  cuCtxSetCurrent(context);
  for (int round = 0; round < work.rounds; ++round) {
    const int i = (round * (thread + 1) + thread) % kBlocks;
    CUdeviceptr block = 0, second = 0, base = 0;
    size_t bytes = 0;
    unsigned holds = 0;
    wrong += cuIpcOpenMemHandle(&block, work.handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
             CUDA_SUCCESS;
    wrong += cuIpcOpenMemHandle(&second, work.handles[(i + 1) % kBlocks],
                                CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS;
    wrong += cuMemcpyDtoH(&holds, block + kBytes - 4, 4) != CUDA_SUCCESS;
    wrong += holds != static_cast<unsigned>(100 + i);
    wrong += cuIpcCloseMemHandle(block) != CUDA_SUCCESS;
    wrong += cuMemGetAddressRange(&base, &bytes, second + 1) != CUDA_SUCCESS;
    wrong += base != second || bytes != kBytes;
    wrong += cuIpcCloseMemHandle(second) != CUDA_SUCCESS;
  }
  return wrong;
}

// While the others look.
int allocate(const std::atomic<bool>& stop, CUcontext context) {
  int wrong = 0;
  cuCtxSetCurrent(context);
  for (size_t i = 0; !stop; ++i) {
    CUdeviceptr block = 0;
    unsigned holds = 0;
    const auto value = static_cast<unsigned>(i);
    wrong += cuMemAlloc(&block, 1000 + 300'000 * (i % 9)) != CUDA_SUCCESS;
    wrong += cuMemsetD32(block, value, 1) != CUDA_SUCCESS;
    wrong += cuMemcpyDtoH(&holds, block, 4) != CUDA_SUCCESS || holds != value;
    wrong += cuMemFree(block) != CUDA_SUCCESS;
  }
  return wrong;
}

int import(const Peer& owner) {
  CUcontext context = use_device(0);
  const auto work = owner.must_hear<Work>();
  std::atomic<int> wrong{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads, others;
  for (int i = 0; i < work.others; ++i) {
    others.emplace_back([&] { wrong += allocate(stop, context); });
  }
  for (int i = 0; i < work.threads; ++i) {
    threads.emplace_back([&, i] { wrong += look(work, i, context); });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  for (std::thread& thread : others) thread.join();
  owner.tell(wrong.load());
  return 0;
}

int churn() {
  int wrong = 0;
  for (int i = 0; i < 200; ++i) {
    CUdeviceptr block = 0;
    CUipcMemHandle handle;
    wrong += cuMemAlloc(&block, 1000 + 5000 * static_cast<size_t>(i % 10)) != CUDA_SUCCESS;
    if (i % 3 == 0) wrong += cuIpcGetMemHandle(&handle, block) != CUDA_SUCCESS;
    wrong += cuMemFree(block) != CUDA_SUCCESS;
  }
  return wrong;
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words));
  if (count < 4) return 1;
  std::vector<Peer> importers;
  for (int i = std::atoi(words[1]); i > 0; --i) importers.emplace_back(words[0], "import");
  use_device(0);
  Work work{{}, std::atoi(words[2]), std::atoi(words[3]), count > 4 ? std::atoi(words[4]) : 0};
  CUdeviceptr blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    SAY(cuMemAlloc(&blocks[i], kBytes));
    SAY(cuMemsetD32(blocks[i], static_cast<unsigned>(100 + i), kBytes / 4));
    SAY(cuIpcGetMemHandle(&work.handles[i], blocks[i]));
  }
  SAY(cuCtxSynchronize());
  for (const Peer& importer : importers) importer.tell(work);
  std::printf("wrong in the owner: %d\n", churn());
  int wrong = 0;
  for (const Peer& importer : importers) wrong += importer.must_hear<int>();
  for (const Peer& importer : importers) wrong += importer.end();
  std::printf("wrong in the importers: %d\n", wrong);
  for (const CUdeviceptr block : blocks) SAY(cuMemFree(block));
  return 0;
}
