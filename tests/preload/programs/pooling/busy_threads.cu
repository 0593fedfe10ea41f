// SPDX-License-Identifier: Apache-2.0
// Many threads allocate, launch and free: every block keeps what was written to it.
// busy_threads THREADS OPERATIONS [--whole] [--time]
//
// The threads share the operations. Each has a stream of its own and a few blocks of 4 KiB to 4 MiB
// (--whole: of 1 MiB to 4 MiB, which pools may keep as the driver gave them); in an operation the
// oldest is checked and freed, and another one allocated and stamped. With --time the figures
// follow on stderr: what it took, of the clock and of the processors, and the most bytes live at a
// time.

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kBlocks = 8;  // that a thread holds

struct Block {
  uint32_t* memory = nullptr;
  size_t bytes = 0;
  uint32_t stamp = 0;
};

std::atomic<size_t> live_bytes{0};
std::atomic<size_t> peak_bytes{0};

void count_live(size_t bytes) {
  const size_t now = live_bytes.fetch_add(bytes) + bytes;
  size_t peak = peak_bytes.load();
  while (peak < now && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
}

class Worker {
 public:
  Worker(unsigned number, bool whole, unsigned long long* verdict)
      : state_(number + 1), smallest_(whole ? 20 : 12), verdict_(verdict) {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }

  void work(size_t operations) {
    for (size_t i = 0; i < operations; ++i) {
      Block& block = blocks_[i % kBlocks];
      release(block);
      obtain(block);
    }
    for (Block& block : blocks_) release(block);
    CHECK(cudaStreamSynchronize(stream_));
    CHECK(cudaStreamDestroy(stream_));
  }

 private:
  // Any magnitude is as likely as another.
  size_t draw_bytes() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const size_t magnitude = size_t{1} << (smallest_ + (state_ >> 33) % (22 - smallest_));
    return magnitude + (state_ >> 43) % magnitude / 512 * 512;
  }

  void obtain(Block& block) {
    block.bytes = draw_bytes();
    block.stamp = static_cast<uint32_t>(state_ >> 32);
    CHECK(cudaMalloc(&block.memory, block.bytes));
    count_live(block.bytes);
    stamp_block<<<1, 1, 0, stream_>>>(block.memory, block.bytes / sizeof *block.memory,
                                      block.stamp);
    CHECK(cudaGetLastError());
  }

  void release(Block& block) {
    if (block.memory == nullptr) return;
    check_block<<<1, 1, 0, stream_>>>(block.memory, block.bytes / sizeof *block.memory, block.stamp,
                                      verdict_);
    CHECK(cudaGetLastError());
    CHECK(cudaFree(block.memory));
    live_bytes.fetch_sub(block.bytes);
    block.memory = nullptr;
  }

  uint64_t state_;
  const unsigned smallest_;  // its logarithm
  unsigned long long* const verdict_;
  cudaStream_t stream_ = nullptr;
  Block blocks_[kBlocks];
};

double cpu_ms() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto ms = [](const timeval& time) {
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_usec);
  };
  return ms(used.ru_utime) + ms(used.ru_stime);
}

bool said(int argc, char** argv, const char* option) {
  return std::any_of(argv + 1, argv + argc,
                     [=](const char* word) { return std::strcmp(word, option) == 0; });
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long threads = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0;
  const unsigned long operations = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  if (threads == 0 || operations < threads) {
    std::fprintf(stderr, "usage: busy_threads THREADS OPERATIONS [--whole] [--time]\n");
    return 2;
  }
  const bool whole = said(argc, argv, "--whole");
  unsigned long long* verdict = nullptr;
  CHECK(cudaMalloc(&verdict, 2 * sizeof *verdict));
  CHECK(cudaMemset(verdict, 0, 2 * sizeof *verdict));
  CHECK(cudaDeviceSynchronize());
  const double cpu_before = cpu_ms();
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> all;
  for (unsigned i = 0; i < threads; ++i) {
    all.emplace_back([=] { Worker(i, whole, verdict).work(operations / threads); });
  }
  for (std::thread& thread : all) thread.join();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  const double cpu = cpu_ms() - cpu_before;

  unsigned long long found[2];
  CHECK(cudaMemcpy(found, verdict, sizeof found, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(verdict));
  std::printf("damaged words %llu, checksum %016llx\n", found[0], found[1]);
  if (said(argc, argv, "--time")) {
    std::fprintf(stderr, "took %.2f ms, of processors %.2f ms, peak live bytes %zu\n", took.count(),
                 cpu, peak_bytes.load());
  }
  return 0;
}
