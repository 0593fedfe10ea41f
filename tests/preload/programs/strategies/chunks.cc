// SPDX-License-Identifier: Apache-2.0
// Chunk settings: exactly the sizes asked of the driver, also where another process holds memory.
// Allocates more and more, in blocks of several sizes, and frees all of it again; every block is
// filled and read back. Under a chunk strategy the sizes asked of the driver are those of the
// settings (the expectations count them); what the program sees is the same.
//
//   chunks grow     100 blocks of 1 MiB, then one larger than a chunk, then one that fits anywhere
//   chunks short    on a device that is nearly full, until nothing is left
//   chunks steps    the same with chunks of 64 MiB: each step when one cannot be had, in its order
//   chunks busy     with work pending that will not end for a while

#include <cstring>
#include <vector>

#include "../driver_codes.h"

namespace {

struct Block {
  CUdeviceptr address;
  size_t bytes;
  unsigned char mark;
};

std::vector<Block> blocks;

CUresult allocate(size_t bytes) {
  CUdeviceptr address = 0;
  const CUresult code = cuMemAlloc(&address, bytes);
  if (code != CUDA_SUCCESS) return code;
  const auto mark = static_cast<unsigned char>(blocks.size() + 1);
  cuMemsetD8(address, mark, bytes);
  blocks.push_back({address, bytes, mark});
  return code;
}

void check_and_free_all() {
  int damaged = 0, failures = 0;
  for (const Block& block : blocks) {
    for (const size_t at : {size_t{0}, block.bytes / 2, block.bytes - 1}) {
      unsigned char seen = 0;
      cuMemcpyDtoH(&seen, block.address + at, 1);
      damaged += seen != block.mark;
    }
    CUdeviceptr base = 0;
    size_t size = 0;
    cuMemGetAddressRange(&base, &size, block.address + block.bytes - 1);
    damaged += base != block.address || size != block.bytes;
  }
  for (const Block& block : blocks) failures += cuMemFree(block.address) != CUDA_SUCCESS;
  blocks.clear();
  SAY(cuCtxSynchronize());
  std::printf("damaged %d, frees that failed %d\n", damaged, failures);
}

void grow() {
  for (int i = 0; i < 100; ++i) {
    if (allocate(kMiB) != CUDA_SUCCESS) std::printf("refused\n");
  }
  check_and_free_all();
  SAY(allocate(100 * kMiB + 1));
  SAY(allocate(1000));
  check_and_free_all();
  SAY(allocate(30 * kMiB));
  SAY(allocate(90 * kMiB));
  check_and_free_all();
}

void run_short() {
  SAY(allocate(120 * kMiB));
  SAY(allocate(10 * kMiB));
  SAY(allocate(4 * kMiB));
  SAY(allocate(200 * kMiB));
  SAY(allocate(1000));
  check_and_free_all();
  SAY(allocate(150 * kMiB));
  check_and_free_all();
}

// 156 MiB are there.
void run_steps() {
  SAY(allocate(60 * kMiB));
  SAY(allocate(60 * kMiB));
  SAY(allocate(20 * kMiB));  // just this
  SAY(allocate(5 * kMiB));   // an eighth of a chunk
  SAY(allocate(4 * kMiB));   // inside a chunk
  check_and_free_all();
  SAY(allocate(150 * kMiB));  // after all chunks were returned
  check_and_free_all();
}

// A block is freed that work is still pending on, and the next one does not fit into the chunk.
void run_busy() {
  CUstream stream = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAY(allocate(118 * kMiB));
  SAY(allocate(8 * kMiB));
  SAY(cuCtxSynchronize());
  SAY(cuMemsetD8Async(blocks.back().address, 1, 8 * kMiB, stream));
  SAY(cuMemFree(blocks.back().address));
  blocks.pop_back();
  SAY(allocate(10 * kMiB));
  check_and_free_all();
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "grow";
  const auto is = [what](const char* name) { return std::strcmp(what, name) == 0; };
  use_device(0);
  if (is("grow")) grow();
  if (is("short")) run_short();
  if (is("steps")) run_steps();
  if (is("busy")) run_busy();
  return 0;
}
