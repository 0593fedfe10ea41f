// SPDX-License-Identifier: Apache-2.0
// Consecutive allocations of one call site lie side by side with the fuse_parameter settings.
// How many of them begin where the one before ended (rounded up to 512 bytes) is told in the trace
// alone, by the value of a fill: without a pool it is the driver's affair.
//
//   one BYTES N      N blocks of one site, written as one buffer where they lie side by side
//   two BYTES N      two sites in turn, N each
//   unlike           sizes of a model's layers, four times over

#include <cstdlib>
#include <cstring>
#include <vector>

#include "../driver_codes.h"

namespace {

CUdeviceptr board;

struct Run {
  CUdeviceptr end = 0;
  int longest = 1, now = 1;

  void add(CUdeviceptr block, size_t bytes) {
    now = block == end ? now + 1 : 1;
    if (now > longest) longest = now;
    end = block + (bytes + 511) / 512 * 512;
  }
  void tell() const { cuMemsetD8(board, static_cast<unsigned char>(longest), 1); }
};

// What is told of a block is told of it alone, wherever it lies.
void check(CUdeviceptr block, size_t bytes) {
  CUdeviceptr base = 0;
  size_t size = 0;
  cuMemGetAddressRange(&base, &size, block + bytes - 1);
  if (base != block || size != bytes) std::printf("another block is told\n");
  cuMemsetD8(block, 3, bytes);
}

[[gnu::noinline]] CUdeviceptr get(size_t bytes) {
  CUdeviceptr block = 0;
  if (cuMemAlloc(&block, bytes) != CUDA_SUCCESS) std::printf("no memory\n");
  return block;
}

void one(size_t bytes, int n) {
  Run run;
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < n; ++i) {
    blocks.push_back(get(bytes));
    run.add(blocks.back(), bytes);
    check(blocks.back(), bytes);
  }
  run.tell();
  for (int i = n; i-- > 0;) SAY(cuMemFree(blocks[static_cast<size_t>(i)]));
}

void two(size_t bytes, int n) {
  Run run;
  for (int i = 0; i < n; ++i) {
    const CUdeviceptr a = get(bytes);
    run.add(a, bytes);
    const CUdeviceptr b = get(bytes);
    run.add(b, bytes);
    check(a, bytes);
    check(b, bytes);
  }
  run.tell();
}

void unlike() {
  const size_t sizes[] = {4 << 10, 4 * kMiB, 64 << 10};
  for (int round = 0; round < 4; ++round) {
    Run run;
    CUdeviceptr blocks[3];
    for (int i = 0; i < 3; ++i) {
      blocks[i] = get(sizes[i]);
      run.add(blocks[i], sizes[i]);
    }
    run.tell();
    for (int i = 0; i < 3; ++i) check(blocks[i], sizes[i]);
    for (int i = 0; i < 17; ++i) {  // so many end a group
      CUdeviceptr other = 0;
      SAY(cuMemAlloc(&other, 512));
      SAY(cuMemFree(other));
    }
    for (const CUdeviceptr block : blocks) SAY(cuMemFree(block));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CUcontext context;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  if (argc < 2) return 1;
  if (strcmp(argv[1], "unlike") != 0 && argc < 4) return 1;
  cuMemAlloc(&board, 512);
  if (strcmp(argv[1], "one") == 0) one(strtoull(argv[2], nullptr, 0), atoi(argv[3]));
  if (strcmp(argv[1], "two") == 0) two(strtoull(argv[2], nullptr, 0), atoi(argv[3]));
  if (strcmp(argv[1], "unlike") == 0) unlike();
  cuMemFree(board);
}
