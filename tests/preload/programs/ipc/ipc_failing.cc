// SPDX-License-Identifier: Apache-2.0
// A driver call that fails once on a block's way to another process leaves nothing behind.
// Whoever made it tries again: what was opened can be read, and after the last close there is no
// descriptor, mapping, address or handle of it.
//
//   ipc_failing here|there RULE    the owner's or the importer's SIMCUDA_FAIL

#include "left.h"
#include "processes.h"

namespace {

constexpr size_t kSizes[] = {64 * 1024, 1000, 5 * kMiB};
constexpr int kBlocks = 3, kRounds = 2, kTries = 4;

struct Order {
  CUipcMemHandle handles[kBlocks];
};

template <typename Call>
CUresult until_it_works(Call call) {
  CUresult code = CUDA_SUCCESS;
  for (int i = 0; i < kTries; ++i) {
    code = call();
    if (code == CUDA_SUCCESS) return code;
  }
  return code;
}

// An error may belong to earlier work, and the call have done its own.
int close_for_sure(CUdeviceptr block) {
  CUresult code = cuIpcCloseMemHandle(block);
  for (int i = 1; i < kTries && code != CUDA_SUCCESS; ++i) {
    code = cuIpcCloseMemHandle(block);
    if (code == CUDA_ERROR_INVALID_VALUE) code = CUDA_SUCCESS;
  }
  return code != CUDA_SUCCESS;
}

int use(const Order& order) {
  int wrong = 0;
  CUdeviceptr blocks[kBlocks + 1] = {};
  for (int i = 0; i <= kBlocks; ++i) {
    const CUipcMemHandle& handle = order.handles[i % kBlocks];
    wrong += until_it_works([&] {
               return cuIpcOpenMemHandle(&blocks[i], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
             }) != 0;
    unsigned char holds = 0;
    const CUdeviceptr last = blocks[i] + kSizes[i % kBlocks] - 1;
    wrong += until_it_works([&] { return cuMemcpyDtoH(&holds, last, 1); }) != 0;
    wrong += holds != 40 + i % kBlocks;
  }
  for (const CUdeviceptr block : blocks) wrong += close_for_sure(block);
  return wrong;
}

struct Told {
  int wrong;
  long files;
  Left before, after;
};

int import(const Peer& owner) {
  use_device(0);
  const auto order = owner.must_hear<Order>();
  Told told{};
  told.before = look();
  told.files = -all_files();
  for (int round = 0; round < kRounds; ++round) told.wrong += use(order);
  told.files += all_files();
  told.after = look();
  owner.tell(told);
  return 0;
}

const char* g_rule;

void fail_there() { setenv("SIMCUDA_FAIL", g_rule, 1); }

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words));
  if (count < 3) return 1;
  g_rule = words[2];
  const bool here = std::strcmp(words[1], "here") == 0;
  const Peer importer(words[0], "import", here ? nullptr : fail_there);
  if (here) setenv("SIMCUDA_FAIL", g_rule, 1);
  use_device(0);
  Order order{};
  CUdeviceptr blocks[kBlocks] = {};
  int wrong = 0;
  for (int i = 0; i < kBlocks; ++i) {
    wrong += until_it_works([&] { return cuMemAlloc(&blocks[i], kSizes[i]); }) != 0;
    const auto value = static_cast<unsigned char>(40 + i);
    wrong += until_it_works([&] { return cuMemsetD8(blocks[i], value, kSizes[i]); }) != 0;
  }
  wrong += until_it_works([] { return cuCtxSynchronize(); }) != 0;
  const Left before = look();
  for (int i = 0; i < kBlocks; ++i) {
    wrong += until_it_works([&] { return cuIpcGetMemHandle(&order.handles[i], blocks[i]); }) != 0;
  }
  importer.tell(order);
  const auto told = importer.must_hear<Told>();
  std::printf("wrong: %d, %d\n", wrong, told.wrong);
  say_left("owner", before, look_when_sent(before));
  say_left("importer", told.before, told.after);
  std::printf("other files: %ld\n", told.files - (told.after.files - told.before.files));
  std::printf("importer ended with %d\n", importer.end());
  for (const CUdeviceptr block : blocks) {
    std::printf("freed: %d\n", until_it_works([=] { return cuMemFree(block); }) != 0);
  }
  return 0;
}
