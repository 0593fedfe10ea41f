// SPDX-License-Identifier: Apache-2.0
// Pinned memory that was freed is not handed out while earlier work may still read or write it.
// A block is freed under work that begins later; the next block of its size is written at once.
// Work of another context, on this device or another, may reach every block, too.
//
//   pinned_reuse own|context|device from|into|kernel BYTES ROUNDS
//
// from, into: a copy to or from the device. kernel: one that reads the block by itself.

#include <cstdlib>
#include <cstring>

#include "../driver_codes.h"
#include "../timed_code.h"

namespace {

constexpr uint32_t kDelayUs = 1000;

CUcontext another(const char* where) {
  CUcontext context = nullptr;
  if (std::strcmp(where, "context") == 0) {
    MUST(cuCtxCreate(&context, nullptr, 0, 0));
  } else {
    MUST(cuDevicePrimaryCtxRetain(&context, 1));
  }
  return context;
}

uint32_t* new_block(size_t words, uint32_t value) {
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, words * sizeof(uint32_t), CU_MEMHOSTALLOC_PORTABLE));
  auto* block = static_cast<uint32_t*>(memory);
  for (size_t i = 0; i < words; ++i) block[i] = value;
  return block;
}

size_t other_than(const uint32_t* block, size_t words, uint32_t value) {
  size_t wrong = 0;
  for (size_t i = 0; i < words; ++i) wrong += block[i] != value;
  return wrong;
}

// The work on the block that is freed, of another thread's or context's stream.
void begin_work(const timed::Worker& worker, const char* what, uint32_t* block, size_t words,
                CUdeviceptr device, CUdeviceptr total) {
  worker.use();
  MUST(timed::fill_words(worker.kernels, worker.stream, total, 2, 0, kDelayUs));
  if (std::strcmp(what, "from") == 0) {
    MUST(cuMemcpyHtoDAsync(device, block, words * 4, worker.stream));
  } else if (std::strcmp(what, "into") == 0) {
    MUST(cuMemcpyDtoHAsync(block, device, words * 4, worker.stream));
  } else {
    CUdeviceptr address = 0;
    MUST(cuMemHostGetDevicePointer(&address, block, 0));
    MUST(timed::sum_words(worker.kernels, worker.stream, address, words, total, kDelayUs));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const char* what = argv[2];
  const size_t words = std::strtoull(argv[3], nullptr, 10) / sizeof(uint32_t);
  const auto rounds = static_cast<uint32_t>(std::atoi(argv[4]));
  const CUcontext first = use_device(0);
  const CUcontext second = std::strcmp(argv[1], "own") == 0 ? first : another(argv[1]);
  MUST(cuCtxSetCurrent(second));
  const timed::Worker worker(second);
  CUdeviceptr device = 0, total = 0;
  MUST(cuMemAlloc(&device, words * 4));
  MUST(cuMemAlloc(&total, 8));
  size_t wrong = 0;
  for (uint32_t round = 1; round <= rounds; ++round) {
    worker.use();
    MUST(cuMemsetD32(device, round, words));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(first));
    uint32_t* block = new_block(words, round + 1000);
    begin_work(worker, what, block, words, device, total);
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemFreeHost(block));
    uint32_t* next = new_block(words, 7);
    worker.use();
    MUST(cuStreamSynchronize(worker.stream));
    wrong += other_than(next, words, 7);
    if (std::strcmp(what, "from") == 0) {
      uint32_t* seen = new_block(words, 0);
      MUST(cuMemcpyDtoH(seen, device, words * 4));
      wrong += other_than(seen, words, round + 1000);
      MUST(cuMemFreeHost(seen));
    } else if (std::strcmp(what, "kernel") == 0) {
      unsigned long long sum = 0;
      MUST(cuMemcpyDtoH(&sum, total, 8));
      // fill_words() has left 0 and 1 in its two words.
      wrong += sum - (1ull << 32) != words * uint64_t{round + 1000};
    }
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemFreeHost(next));
  }
  std::printf("wrong: %zu\n", wrong);
  return wrong == 0 ? 0 : 1;
}
