// SPDX-License-Identifier: Apache-2.0
// Threads that race for the last bytes under a cap never hold more.
// The device is small, and the memory of every kind. In the end all of it can be had again.

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "../kinds.h"

namespace {

constexpr int kThreads = 4, kRounds = 300;
constexpr size_t kCard = 64 * kMiB, kBytes = 14 * kMiB;  // four fit, five do not

std::atomic<size_t> g_held{0}, g_most{0};
std::atomic<int> g_wrong_codes{0}, g_refused_frees{0}, g_too_much_free{0};

void hold(size_t bytes) {
  const size_t now = g_held += bytes;
  size_t most = g_most;
  while (most < now && !g_most.compare_exchange_weak(most, now)) {
  }
}

void work(int self) {
  use_device(0);
  std::vector<std::pair<const Kind*, Piece>> pieces;
  const auto free_one = [&] {
    g_held -= kBytes;
    if (pieces.back().first->free(&pieces.back().second) != CUDA_SUCCESS) ++g_refused_frees;
    pieces.pop_back();
  };
  for (int round = 0; round < kRounds; ++round) {
    const Kind& kind = kinds::kAll[(round + self) % std::size(kinds::kAll)];
    Piece piece;
    const CUresult code = allocate(kind, &piece, kBytes);
    if (code == CUDA_SUCCESS) {
      hold(kBytes);
      pieces.emplace_back(&kind, piece);
    } else if (code != CUDA_ERROR_OUT_OF_MEMORY) {
      ++g_wrong_codes;
    }
    size_t free_bytes = 0, total = 0;
    cuMemGetInfo(&free_bytes, &total);
    if (free_bytes > total || total != kCard) ++g_too_much_free;
    if (pieces.size() > static_cast<size_t>(round % 3)) free_one();
  }
  while (!pieces.empty()) free_one();
}

}  // namespace

int main() {
  use_device(0);
  kinds::own_pool(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  SAY(cuCtxSynchronize());
  // A count goes up after the allocation and down before the free, so this is exact enough.
  std::printf("more than the card at once: %d\n", g_most > kCard);
  std::printf("wrong codes %d, refused frees %d, wrong sizes %d\n", g_wrong_codes.load(),
              g_refused_frees.load(), g_too_much_free.load());
  size_t free_bytes = 0;
  SAY(cuMemGetInfo(&free_bytes, nullptr));
  std::printf("free in the end: %zu MiB\n", free_bytes / kMiB);
  for (const Kind& kind : kinds::kAll) {
    Piece piece;
    SAY(allocate(kind, &piece, kCard - kMiB));
    SAY(kind.free(&piece));
  }
  return 0;
}
