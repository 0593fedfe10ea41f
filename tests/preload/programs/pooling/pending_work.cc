// SPDX-License-Identifier: Apache-2.0
// An allocation does not wait for a kernel that waits for the host.
// So it is as long as there is memory. The argument chooses how much there is:
//   plenty  more than ever needed
//   short   what the program freed before has to serve it again, in blocks of other sizes
//   unsynchronised  the same, and nothing was synchronised between those frees and the work

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "../driver_codes.h"
#include "../watch_time.h"

namespace {

std::atomic<bool> g_go{false};

// Stands for a kernel that spins on a flag of the host. A call that waits for it hangs.
void spin(void*) {
  while (!g_go) usleep(100);
}

void allocate_meanwhile(CUstream stream, std::initializer_list<size_t> sizes) {
  g_go = false;
  SAY(cuLaunchHostFunc(stream, spin, nullptr));
  std::vector<CUdeviceptr> blocks;
  int failures = 0;
  for (const size_t bytes : sizes) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, bytes) != CUDA_SUCCESS) ++failures;
    blocks.push_back(block);
  }
  size_t free_bytes, total;
  SAY(cuMemGetInfo(&free_bytes, &total));
  g_go = true;
  SAY(cuStreamSynchronize(stream));
  for (const CUdeviceptr block : blocks) failures += cuMemFree(block) != CUDA_SUCCESS ? 1 : 0;
  std::printf("failures %d\n", failures);
}

void plenty(CUstream stream) {
  // Nothing kept; much kept from before; much of it freed a moment ago.
  allocate_meanwhile(stream, {8 * kMiB, 1000, 300 * kMiB});
  SAY(cuCtxSynchronize());
  allocate_meanwhile(stream, {8 * kMiB, 100 * kMiB, 1000, 500 * kMiB, 2 * kMiB});
  allocate_meanwhile(stream, {9 * kMiB, 1000, 120 * kMiB, 500 * kMiB, 40 * kMiB});
}

// With 256 MiB in all.
void too_little(CUstream stream) {
  std::vector<CUdeviceptr> blocks(30);
  for (CUdeviceptr& block : blocks) cuMemAlloc(&block, 2 * kMiB);
  for (const CUdeviceptr block : blocks) cuMemFree(block);
  SAY(cuCtxSynchronize());
  allocate_meanwhile(stream, {100 * kMiB, 100 * kMiB, 1000, 40 * kMiB});
  SAY(cuCtxSynchronize());
  allocate_meanwhile(stream, {30 * kMiB, 200 * kMiB, 1000});
}

// With 256 MiB in all.
void unsynchronised(CUstream stream) {
  std::vector<CUdeviceptr> blocks(30);
  for (CUdeviceptr& block : blocks) {
    cuMemAlloc(&block, 5 * kMiB);
    cuMemsetD8Async(block, 1, 4096, stream);
  }
  for (const CUdeviceptr block : blocks) cuMemFree(block);
  allocate_meanwhile(stream, {220 * kMiB, 1000});
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  use_device(0);
  CUstream stream;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  if (argc == 1) {
    plenty(stream);
  } else {
    std::strcmp(argv[1], "short") == 0 ? too_little(stream) : unsynchronised(stream);
  }
  return 0;
}
