// SPDX-License-Identifier: Apache-2.0
// The same loop over any allocator: replays FILE (columns time_us,op,id,size,stream). A kernel
// stamps each block when it is allocated, another one checks it before it is freed. Times the
// allocator's calls alone, less what asking the clock takes.
//
//   PROGRAM FILE SYNC_EVERY
//
// Prints "pairs N ns NS live BYTES held BYTES ms MS damaged WORDS", MS for the whole loop; ends
// with 3 where memory is out.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "peer.h"

namespace {

using Clock = std::chrono::steady_clock;

void must(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::fprintf(stderr, "loop: %s: %d\n", what, static_cast<int>(code));
  std::exit(1);
}
#define MUST(call) must(call, #call)

struct Event {
  bool allocates;
  unsigned long long id;
  size_t bytes;
};

struct Block {
  void* memory;
  size_t bytes;
};

std::vector<Event> read_events(const char* path) {
  std::ifstream file(path);
  std::vector<Event> events;
  std::string line;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    char op[8];
    Event event{};
    if (std::sscanf(line.c_str(), "%*[0-9],%7[a-z],%llu,%zu", op, &event.id, &event.bytes) != 3) {
      std::fprintf(stderr, "loop: %s: not an event: %s\n", path, line.c_str());
      std::exit(2);
    }
    event.allocates = std::strcmp(op, "alloc") == 0;
    events.push_back(event);
  }
  return events;
}

int64_t ns(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// What two questions in a row take at least.
int64_t clock_ns() {
  int64_t least = INT64_MAX;
  for (int i = 0; i < 10000; ++i) {
    const auto start = Clock::now();
    least = std::min(least, ns(Clock::now() - start));
  }
  return least;
}

class Loop {
 public:
  Loop() {
    CUmodule module = nullptr;
    MUST(cuModuleLoadData(&module, "any image"));
    MUST(cuModuleGetFunction(&stamp_, module, "_Z11stamp_blockPjmj"));
    MUST(cuModuleGetFunction(&check_, module, "_Z11check_blockPKjmjPy"));
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&verdict_), 2 * sizeof *verdict_, 0));
    verdict_[0] = verdict_[1] = 0;
  }

  void play(const Event& event) {
    if (event.allocates) {
      allocate(event);
    } else {
      release(event.id);
    }
  }

  void finish() {
    std::vector<unsigned long long> left;
    for (const auto& [id, block] : blocks_) left.push_back(id);
    std::sort(left.begin(), left.end());
    for (const unsigned long long id : left) release(id);
    MUST(cuCtxSynchronize());
    const double pairs = static_cast<double>(allocations_);
    std::printf("pairs %zu ns %.1f live %zu held %llu ms %.1f damaged %llu\n", allocations_,
                static_cast<double>(in_calls_) / pairs, peak_,
                static_cast<unsigned long long>(peer::held_peak()),
                static_cast<double>(ns(Clock::now() - begun_)) / 1e6, verdict_[0]);
  }

 private:
  static unsigned stamp_of(unsigned long long id) {
    return static_cast<unsigned>(id + 1) * 0x9e3779b9U;
  }

  void launch(CUfunction kernel, const Block& block, unsigned stamp) {
    size_t words = block.bytes / sizeof(unsigned);
    void* memory = block.memory;
    void* verdict = verdict_;
    void* parameters[] = {&memory, &words, &stamp, &verdict};
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, parameters, nullptr));
  }

  void allocate(const Event& event) {
    const auto start = Clock::now();
    void* memory = peer::allocate(event.bytes);
    in_calls_ += ns(Clock::now() - start) - clock_;
    if (memory == nullptr) std::exit(3);
    const Block block{memory, event.bytes};
    launch(stamp_, block, stamp_of(event.id));
    blocks_[event.id] = block;
    ++allocations_;
    live_ += event.bytes;
    peak_ = std::max(peak_, live_);
  }

  void release(unsigned long long id) {
    const Block block = blocks_.at(id);
    launch(check_, block, stamp_of(id));
    const auto start = Clock::now();
    peer::release(block.memory, block.bytes);
    in_calls_ += ns(Clock::now() - start) - clock_;
    blocks_.erase(id);
    live_ -= block.bytes;
  }

  const int64_t clock_ = clock_ns();
  const Clock::time_point begun_ = Clock::now();
  CUfunction stamp_ = nullptr, check_ = nullptr;
  unsigned long long* verdict_ = nullptr;
  std::unordered_map<unsigned long long, Block> blocks_;
  int64_t in_calls_ = 0;
  size_t allocations_ = 0, live_ = 0, peak_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::vector<Event> events = read_events(argv[1]);
  const size_t sync_every = std::strtoull(argv[2], nullptr, 10);
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  peer::open();
  Loop loop;
  for (size_t i = 0; i < events.size(); ++i) {
    loop.play(events[i]);
    if ((i + 1) % sync_every == 0) MUST(cuCtxSynchronize());
  }
  loop.finish();
  return 0;
}
