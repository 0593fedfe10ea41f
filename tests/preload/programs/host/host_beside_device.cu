// SPDX-License-Identifier: Apache-2.0
// Host memory that threads allocate beside busy devices and a living graph keeps what is in it.
// So does device memory.
// host_beside_device THREADS ROUNDS, so many on each device.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../check.h"
#include "../kernels.cuh"
#include "../watch_time.h"

namespace {

constexpr size_t kWords = 4096;
constexpr uint32_t kDelayUs = 20;

std::atomic<bool> over{false};
std::atomic<int> damaged{0};

// Blocks of up to 2 MiB, most of them small; the oldest is checked and freed.
void churn(unsigned seed) {
  Random random(seed);
  struct Block {
    unsigned char* start = nullptr;
    size_t bytes = 0;
  };
  std::vector<Block> held(32);
  for (size_t i = 0; !over.load(); i = (i + 1) % held.size()) {
    auto& [start, bytes] = held[i];
    const auto mark = static_cast<unsigned char>(seed + i);
    if (start != nullptr) damaged += start[0] != mark || start[bytes - 1] != mark;
    std::free(start);
    bytes = 1 + random.below(random.below(20) == 0 ? 2u << 20 : 4000u);
    start = static_cast<unsigned char*>(std::malloc(bytes));
    start[0] = start[bytes - 1] = mark;
    if (i == 0) std::this_thread::yield();
  }
  for (const Block& block : held) std::free(block.start);
}

class Device {
 public:
  explicit Device(int number) : number_(number) {
    CHECK(cudaSetDevice(number));
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&verdict_, 2 * sizeof *verdict_));
    CHECK(cudaMalloc(&of_graph_, kWords * sizeof *of_graph_));
    CHECK(cudaMemset(verdict_, 0, 2 * sizeof *verdict_));
    CHECK(cudaDeviceSynchronize());
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    slow_fill_words<<<1, 1, 0, stream_>>>(of_graph_, kWords, 77, kDelayUs);
    check_words<<<1, 1, 0, stream_>>>(of_graph_, kWords, 77, verdict_);
    CHECK(cudaStreamEndCapture(stream_, &graph));
    CHECK(cudaGraphInstantiate(&living_, graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }

  void work(int rounds) {
    CHECK(cudaSetDevice(number_));
    Random random(static_cast<unsigned>(number_) + 100);
    for (int i = 0; i < rounds; ++i) {
      const size_t words = kWords << random.below(8);
      uint32_t* block;
      CHECK(cudaMalloc(&block, words * sizeof *block));
      const auto seed = static_cast<uint32_t>(i);
      slow_fill_words<<<1, 1, 0, stream_>>>(block, kWords, seed, kDelayUs);
      check_words<<<1, 1, 0, stream_>>>(block, kWords, seed, verdict_);
      CHECK(cudaGetLastError());
      CHECK(cudaGraphLaunch(living_, stream_));
      copy_both_ways(block + kWords / 2, i);
      CHECK(cudaFree(block));
    }
    CHECK(cudaStreamSynchronize(stream_));
  }

  // Damaged words, and the sum of all that were read.
  void end() {
    CHECK(cudaSetDevice(number_));
    unsigned long long found[2];
    CHECK(cudaMemcpy(found, verdict_, sizeof found, cudaMemcpyDeviceToHost));
    std::printf("device %d: damaged %llu, checksum %016llx\n", number_, found[0], found[1]);
    CHECK(cudaGraphExecDestroy(living_));
    CHECK(cudaFree(of_graph_));
    CHECK(cudaFree(verdict_));
    CHECK(cudaStreamDestroy(stream_));
  }

 private:
  // Between the device and memory of malloc.
  void copy_both_ways(uint32_t* block, int i) {
    if (i % 4 != 0) return;
    const size_t bytes = kWords / 2 * sizeof *block;
    auto* out = static_cast<uint32_t*>(std::malloc(bytes));
    auto* in = static_cast<uint32_t*>(std::calloc(1, bytes));
    std::memset(out, i, bytes);
    CHECK(cudaMemcpyAsync(block, out, bytes, cudaMemcpyHostToDevice, stream_));
    CHECK(cudaMemcpyAsync(in, block, bytes, cudaMemcpyDeviceToHost, stream_));
    CHECK(cudaStreamSynchronize(stream_));
    damaged += std::memcmp(out, in, bytes) != 0;
    std::free(out);
    std::free(in);
  }

  int number_;
  cudaStream_t stream_ = nullptr;
  unsigned long long* verdict_ = nullptr;
  uint32_t* of_graph_ = nullptr;
  cudaGraphExec_t living_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 1;
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.emplace_back(i);
  std::vector<std::thread> beside, workers;
  for (int i = 0; i < threads; ++i) beside.emplace_back(churn, static_cast<unsigned>(i + 1));
  for (Device& device : devices) workers.emplace_back([&, rounds] { device.work(rounds); });
  for (std::thread& worker : workers) worker.join();
  over = true;
  for (std::thread& thread : beside) thread.join();
  for (Device& device : devices) device.end();
  std::printf("damaged blocks of the host: %d\n", damaged.load());
  return 0;
}
