// SPDX-License-Identifier: Apache-2.0
// When a freed block comes back under the garbage settings: all of them before memory is out.
// Frees and allocates again. Whether a new block lies where an earlier one was, and may hold what
// was written there, is told in the trace alone, by a fill with the value 1 (else 0): without a
// pool it is the driver's affair.
//
//   rounds N BYTES synced|not   one block after the other, and a synchronisation after each free
//   largest      five blocks freed, and asked for again before and after a synchronisation
//   short        frees what nearly fills the device, and asks for it in other ways
//   contexts     the same, freed in one context and asked for in another

#include <cstdlib>
#include <cstring>
#include <vector>

#include "../driver_codes.h"

namespace {

struct Range {
  CUdeviceptr begin, end;
};

std::vector<Range> freed;
CUdeviceptr board;  // where it is told

CUdeviceptr get(size_t bytes) {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, bytes));
  bool again = false;
  for (const Range& range : freed) again |= block < range.end && range.begin < block + bytes;
  cuMemsetD8(board, again ? 1 : 0, 1);
  cuMemsetD16(block, 7, bytes / 2);
  return block;
}

void put(CUdeviceptr block, size_t bytes) {
  SAY(cuMemFree(block));
  freed.push_back({block, block + bytes});
}

void rounds(int n, size_t bytes, bool synced) {
  for (int i = 0; i < n; ++i) {
    put(get(bytes), bytes);
    if (synced) SAY(cuCtxSynchronize());
  }
}

void largest() {
  const size_t sizes[] = {2 * kMiB, 8 * kMiB, 4 * kMiB, 8 * kMiB, 6 * kMiB};
  std::vector<CUdeviceptr> blocks;
  for (const size_t bytes : sizes) blocks.push_back(get(bytes));
  SAY(cuCtxSynchronize());
  for (size_t i = 0; i < blocks.size(); ++i) put(blocks[i], sizes[i]);
  for (const size_t bytes : {8, 8, 6, 4, 2}) get(bytes * kMiB);
  SAY(cuCtxSynchronize());
  for (const size_t bytes : {6, 4, 2}) get(bytes * kMiB);
}

// With 64 MiB in all.
void run_short() {
  const size_t at_first = free_memory();
  for (int round = 0; round < 10; ++round) {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(get(18 * kMiB));
    for (const CUdeviceptr block : blocks) put(block, 18 * kMiB);
    freed.clear();
    std::printf("as much is free as at first: %d\n", free_memory() == at_first);
    CUdeviceptr other = 0;
    size_t pitch;
    switch (round % 4) {
      case 0:
        SAY(cuMemAllocPitch(&other, &pitch, size_t{1} << 16, 50 * 16, 16));
        SAY(cuMemFree(other));
        break;
      case 1:
        SAY(cuMemAllocManaged(&other, 50 * kMiB, CU_MEM_ATTACH_GLOBAL));
        SAY(cuMemFree(other));
        break;
      case 2:
        SAY(cuMemAllocAsync(&other, 50 * kMiB, nullptr));
        SAY(cuMemFreeAsync(other, nullptr));
        SAY(cuCtxSynchronize());
        break;
      default:
        break;
    }
  }
  CUdeviceptr too_much = 0;
  SAY(cuMemAlloc(&too_much, 63 * kMiB));
}

// With 64 MiB in all.
void contexts(CUcontext first) {
  CUcontext second = nullptr;
  SAY(cuCtxCreate(&second, nullptr, 0, 0));
  for (int round = 0; round < 4; ++round) {
    SAY(cuCtxSetCurrent(round % 2 == 0 ? second : first));
    put(get(50 * kMiB), 50 * kMiB);
    freed.clear();
  }
  SAY(cuCtxDestroy(second));
  SAY(cuCtxSetCurrent(first));
  put(get(50 * kMiB), 50 * kMiB);
}

}  // namespace

int main(int argc, char** argv) {
  CUcontext context = use_device(0);
  SAY(cuMemAlloc(&board, 512));
  const auto is = [&](const char* name) { return argc > 1 && std::strcmp(argv[1], name) == 0; };
  if (is("rounds") && argc > 4) {
    rounds(std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10),
           std::strcmp(argv[4], "synced") == 0);
  } else if (is("largest")) {
    largest();
  } else if (is("short")) {
    run_short();
  } else if (is("contexts")) {
    contexts(context);
  }
  return 0;
}
