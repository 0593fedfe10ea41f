// SPDX-License-Identifier: Apache-2.0
// Only what proves that earlier work is done makes a freed block clean.
// The argument chooses what proves it, or does not:
//   synchronised  the program waits for the device by itself after every free
//   pending       work on a freed block goes on while blocks of its size are allocated and used
//   overlapping   one thread waits for the device, another hands over work and frees meanwhile
//   ahead         the host frees and allocates much faster than the device works

#include <cstring>
#include <thread>

#include "../asleep.h"
#include "../driver_codes.h"

namespace {

constexpr size_t kBytes = 4 * kMiB;

CUstream new_stream() {
  CUstream stream;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUdeviceptr used_block(CUstream stream, size_t bytes) {
  constexpr size_t kTouched = 4096;
  CUdeviceptr block = 0;
  if (cuMemAlloc(&block, bytes) != CUDA_SUCCESS ||
      cuMemsetD8Async(block, 1, kTouched, stream) != CUDA_SUCCESS) {
    std::printf("no block\n");
  }
  return block;
}

void synchronised() {
  const CUstream stream = new_stream();
  for (int i = 0; i < 50; ++i) {
    const CUdeviceptr first = used_block(stream, kBytes), second = used_block(stream, 5000);
    cuMemFree(first);
    cuMemFree(second);
    cuCtxSynchronize();
  }
}

void pending() {
  const CUstream early = new_stream(), late = new_stream();
  cuMemFree(used_block(early, kBytes));
  for (int i = 0; i < 5; ++i) used_block(late, kBytes);
  SAY(cuCtxSynchronize());
}

void overlapping(CUcontext context) {
  const CUstream first = new_stream(), second = new_stream(), third = new_stream();
  const CUdeviceptr block = used_block(first, kBytes);
  Waiter synchronising;
  std::thread other([&] {
    cuCtxSetCurrent(context);
    synchronising.until_asleep();
    cuMemFree(used_block(second, 2 * kBytes));
  });
  synchronising.begins();
  SAY(cuCtxSynchronize());
  synchronising.ends();
  other.join();
  used_block(third, 2 * kBytes);
  SAY(cuMemFree(block));
  SAY(cuCtxSynchronize());
}

void ahead() {
  const CUstream stream = new_stream();
  for (int i = 0; i < 100; ++i) cuMemFree(used_block(stream, 64 * kMiB));
  SAY(cuCtxSynchronize());
}

}  // namespace

int main(int argc, char** argv) {
  const CUcontext context = use_device(0);
  const char* part = argc > 1 ? argv[1] : "";
  if (std::strcmp(part, "synchronised") == 0) synchronised();
  if (std::strcmp(part, "pending") == 0) pending();
  if (std::strcmp(part, "overlapping") == 0) overlapping(context);
  if (std::strcmp(part, "ahead") == 0) ahead();
  std::printf("%s: done\n", part);
  return 0;
}
