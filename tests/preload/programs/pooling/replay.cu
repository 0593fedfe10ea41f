// SPDX-License-Identifier: Apache-2.0
// A recorded PyTorch training run: at least 85 % of the driver's calls are gone.
// Replays the allocations of a recorded program: replay FILE [--sync-every N] [--time]
//
// FILE has the columns time_us,op,id,size,stream (op: alloc or free). Each block is stamped on the
// device when it is allocated and checked before it is freed, so a block that overlaps another one
// is noticed. Synchronises every N events (500), as a training loop does by reading its loss.
// Results on stdout; with --time what the calls took on stderr.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "../check.h"
#include "../kernels.cuh"

namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  bool is_alloc;
  unsigned long long id;
  size_t bytes;
};

struct Block {
  uint32_t* memory;
  size_t bytes;
};

struct Result {
  size_t allocations = 0;
  size_t frees = 0;
  size_t live_bytes = 0;
  size_t peak_bytes = 0;
  Clock::duration in_calls{};
};

std::vector<Event> read_events(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::vector<Event> events;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    char op[8];
    Event event{};
    const int fields =
        std::sscanf(line.c_str(), "%*[0-9],%7[a-z],%llu,%zu", op, &event.id, &event.bytes);
    if (fields != 3 || event.bytes < sizeof(uint32_t)) {
      std::fprintf(stderr, "replay: %s: not an event: %s\n", path, line.c_str());
      std::exit(2);
    }
    event.is_alloc = std::strcmp(op, "alloc") == 0;
    events.push_back(event);
  }
  return events;
}

// Differs from its neighbours' in many bits.
uint32_t stamp_of(unsigned long long id) { return static_cast<uint32_t>(id + 1) * 0x9e3779b9u; }

class Replay {
 public:
  Replay() {
    CHECK(cudaMalloc(&verdict_, 2 * sizeof *verdict_));
    CHECK(cudaMemset(verdict_, 0, 2 * sizeof *verdict_));
  }

  void play(const Event& event) { event.is_alloc ? allocate(event) : release(event.id); }

  // Frees what the recorded program kept to its end, in the order of the ids.
  Result finish() {
    std::vector<unsigned long long> left;
    for (const auto& entry : blocks_) left.push_back(entry.first);
    std::sort(left.begin(), left.end());
    for (const unsigned long long id : left) release(id);
    return result_;
  }

  void print_verdict() {
    unsigned long long verdict[2];
    CHECK(cudaMemcpy(verdict, verdict_, sizeof verdict, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(verdict_));
    std::printf("damaged words %llu, checksum %016llx\n", verdict[0], verdict[1]);
  }

 private:
  void allocate(const Event& event) {
    Block block{nullptr, event.bytes};
    const auto start = Clock::now();
    CHECK(cudaMalloc(&block.memory, event.bytes));
    result_.in_calls += Clock::now() - start;
    stamp_block<<<1, 1>>>(block.memory, event.bytes / sizeof *block.memory, stamp_of(event.id));
    CHECK(cudaGetLastError());
    blocks_[event.id] = block;
    ++result_.allocations;
    result_.live_bytes += event.bytes;
    result_.peak_bytes = std::max(result_.peak_bytes, result_.live_bytes);
  }

  void release(unsigned long long id) {
    const Block block = blocks_.at(id);
    check_block<<<1, 1>>>(block.memory, block.bytes / sizeof *block.memory, stamp_of(id), verdict_);
    CHECK(cudaGetLastError());
    const auto start = Clock::now();
    CHECK(cudaFree(block.memory));
    result_.in_calls += Clock::now() - start;
    blocks_.erase(id);
    ++result_.frees;
    result_.live_bytes -= block.bytes;
  }

  std::unordered_map<unsigned long long, Block> blocks_;
  Result result_;
  unsigned long long* verdict_ = nullptr;
};

struct Options {
  const char* path = nullptr;
  size_t sync_every = 500;
  bool timed = false;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--time") == 0) {
      options.timed = true;
    } else if (std::strcmp(argv[i], "--sync-every") == 0 && i + 1 < argc) {
      options.sync_every = std::strtoull(argv[++i], nullptr, 10);
    } else {
      options.path = argv[i];
    }
  }
  if (options.path == nullptr || options.sync_every == 0) {
    std::fprintf(stderr, "usage: replay FILE [--sync-every N] [--time]\n");
    std::exit(2);
  }
  return options;
}

Result play_all(Replay& replay, const std::vector<Event>& events, const Options& options) {
  for (size_t i = 0; i < events.size(); ++i) {
    replay.play(events[i]);
    if ((i + 1) % options.sync_every == 0) CHECK(cudaDeviceSynchronize());
  }
  const Result result = replay.finish();
  CHECK(cudaDeviceSynchronize());
  return result;
}

double ms(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  const std::vector<Event> events = read_events(options.path);
  if (events.empty()) {
    std::fprintf(stderr, "replay: %s: no events; is it there?\n", options.path);
    return 2;
  }
  Replay replay;
  const auto start = Clock::now();
  const Result result = play_all(replay, events, options);
  const auto total = Clock::now() - start;
  std::printf("allocations %zu, frees %zu, peak live bytes %zu\n", result.allocations, result.frees,
              result.peak_bytes);
  replay.print_verdict();
  if (options.timed) {
    std::fprintf(stderr, "in cudaMalloc and cudaFree %.2f ms, in all %.2f ms\n",
                 ms(result.in_calls), ms(total));
  }
  return 0;
}
