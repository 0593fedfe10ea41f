// SPDX-License-Identifier: Apache-2.0
// The addresses of a destroyed context are known anew once another thread has memory there.
// One thread makes contexts, allocates in them and destroys them with all that; others get the same
// addresses from the driver at once, for memory of other kinds. Each address is theirs from then
// on: it is known, and can be freed, once.

#include <atomic>
#include <thread>
#include <vector>

#include "../kinds.h"

namespace {

constexpr size_t kBytes = 4 * kMiB;
constexpr int kContexts = 150;

std::atomic<bool> g_done{false};
std::atomic<int> g_failures{0}, g_wrong_ranges{0};

void make_and_destroy_contexts() {
  for (int i = 0; i < kContexts; ++i) {
    CUcontext context = nullptr;
    if (cuCtxCreate(&context, nullptr, 0, 0) != CUDA_SUCCESS) ++g_failures;
    std::vector<CUdeviceptr> blocks(4);
    for (CUdeviceptr& block : blocks) {
      if (cuMemAlloc(&block, kBytes) != CUDA_SUCCESS) ++g_failures;
    }
    cuMemFree(blocks[0]);
    if (cuCtxDestroy(context) != CUDA_SUCCESS) ++g_failures;
  }
  g_done = true;
}

void use(const Kind& kind) {
  use_device(0);
  while (!g_done) {
    Piece piece;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (allocate(kind, &piece, kBytes) != CUDA_SUCCESS) ++g_failures;
    if (cuMemGetAddressRange(&base, &bytes, piece.handle) != CUDA_SUCCESS || base != piece.handle ||
        bytes != kBytes) {
      ++g_wrong_ranges;
    }
    if (kind.free(&piece) != CUDA_SUCCESS) ++g_failures;
  }
}

}  // namespace

int main() {
  use_device(0);
  kinds::own_pool(0);
  std::thread stream_ordered(use, kinds::kAll[5]), from_a_pool(use, kinds::kAll[7]);
  make_and_destroy_contexts();
  stream_ordered.join();
  from_a_pool.join();
  SAY(cuCtxSynchronize());
  size_t free_bytes = 0, total = 0;
  SAY(cuMemGetInfo(&free_bytes, &total));
  std::printf("failures %d, wrong ranges %d, missing %zu MiB\n", g_failures.load(),
              g_wrong_ranges.load(), (total - free_bytes) / kMiB);
  return 0;
}
