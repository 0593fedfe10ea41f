// SPDX-License-Identifier: Apache-2.0
// Loops whose memory breaks into pieces complete on a small card where a plan places their blocks.
// Under most other ways to place them they run out of memory there.
//
//   fragmenting train STEPS   A training loop. Each layer has a workspace, larger than the one
//                             before, and an activation that the backward part needs. Half way a
//                             copy of the weights is taken, which stays.
//   fragmenting serve ROUNDS  An inference server. Each of four threads has a stream of its own and
//                             answers requests of so many images, over and over in an order of its
//                             own, so that the calls of all threads never repeat. Half way all
//                             threads are at their largest request at once.
//
// Who calls next is drawn from a seed, so each run makes the same calls in the same order. Where
// plans are made while it runs (CISTERN_PLAN=auto), the half is over only once the log tells of
// one. Each block keeps a stamp that is checked before its free. A request that is refused ends the
// program, with exit status 3; else stderr has the most
// bytes that were live.

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr size_t kKiB = 1024;
constexpr int kRefused = 3;

struct Call {
  unsigned thread;
  unsigned block;  // its number among those of the thread
  size_t bytes;    // 0: a free
};
using Calls = std::vector<Call>;

struct Block {
  uint32_t* memory = nullptr;
  size_t bytes = 0;
  uint32_t stamp = 0;
};

size_t g_live = 0, g_peak = 0, g_made = 0;

// What one thread does in its turn.
class Caller {
 public:
  void begin(unsigned long long* verdict) {
    verdict_ = verdict;
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  void make(const Call& call) { call.bytes != 0 ? get(call) : give_back(call.block); }
  void end() { CHECK(cudaStreamSynchronize(stream_)); }

 private:
  void get(const Call& call) {
    Block block{nullptr, call.bytes, static_cast<uint32_t>(++g_made * 2654435761u)};
    if (cudaMalloc(&block.memory, block.bytes) != cudaSuccess) {
      std::printf("out of memory\n");
      std::fflush(stdout);
      std::_Exit(kRefused);  // other threads wait for their turn
    }
    g_live += block.bytes;
    g_peak = std::max(g_peak, g_live);
    stamp_block<<<1, 1, 0, stream_>>>(block.memory, block.bytes / 4, block.stamp);
    CHECK(cudaGetLastError());
    blocks_[call.block] = block;
  }

  void give_back(unsigned number) {
    const Block block = blocks_[number];
    blocks_.erase(number);
    check_block<<<1, 1, 0, stream_>>>(block.memory, block.bytes / 4, block.stamp, verdict_);
    CHECK(cudaGetLastError());
    CHECK(cudaFree(block.memory));
    g_live -= block.bytes;
  }

  unsigned long long* verdict_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::map<unsigned, Block> blocks_;
};

// Threads that make calls in the order of a list.
class Threads {
 public:
  Threads(unsigned count, unsigned long long* verdict) : callers_(count) {
    for (unsigned i = 0; i < count; ++i)
      threads_.emplace_back([this, i, verdict] { work(i, verdict); });
  }
  ~Threads() {
    run({});
    for (std::thread& thread : threads_) thread.join();
  }

  void run(const Calls& calls) {
    std::unique_lock lock(mutex_);
    calls_ = &calls;
    over_ = calls.empty();
    next_ = 0;
    turned_.notify_all();
    turned_.wait(lock, [&] { return next_ == calls.size(); });
  }

 private:
  void work(unsigned number, unsigned long long* verdict) {
    callers_[number].begin(verdict);
    std::unique_lock lock(mutex_);
    const auto mine = [&] {
      return over_ ||
             (calls_ != nullptr && next_ < calls_->size() && (*calls_)[next_].thread == number);
    };
    for (turned_.wait(lock, mine); !over_; turned_.wait(lock, mine)) {
      callers_[number].make((*calls_)[next_]);
      ++next_;
      turned_.notify_all();
    }
    callers_[number].end();
  }

  std::mutex mutex_;
  std::condition_variable turned_;
  const Calls* calls_ = nullptr;
  size_t next_ = 0;
  bool over_ = false;
  std::vector<Caller> callers_;
  std::vector<std::thread> threads_;
};

// --- the training loop ---

constexpr unsigned kLayers = 24;
constexpr size_t kOneBuffer = 28 * 1024 * kKiB;  // all weights side by side
constexpr unsigned kWeights = 14;
constexpr size_t kWeight = 2048 * kKiB;
constexpr size_t activation(unsigned layer) { return (1060 + 23 * (layer * 5 % 11)) * kKiB; }
constexpr size_t workspace(unsigned layer) { return (700 + 50 * layer) * kKiB; }

Calls training_step(bool copies_weights) {
  Calls calls;
  for (unsigned i = 0; i < kLayers; ++i) {
    calls.push_back({0, 200, workspace(i)});
    calls.push_back({0, 100 + i, activation(i)});
    calls.push_back({0, 150 + i, (3 + i % 5) * kKiB});
    calls.push_back({0, 200, 0});
  }
  if (copies_weights) calls.push_back({0, 300, kOneBuffer});
  for (unsigned i = kLayers; i-- > 0;) {
    calls.push_back({0, 200, activation(i) / 2 + 512});
    calls.push_back({0, 100 + i, 0});
    calls.push_back({0, 150 + i, 0});
    calls.push_back({0, 200, 0});
  }
  return calls;
}

// --- the server ---

// The images of its requests, thread by thread: what all of them do together repeats only after 420
// requests of each.
const std::vector<std::vector<unsigned>> kImages = {
    {1, 8, 3, 16, 5}, {4, 16, 2}, {16, 1, 6, 2, 9, 3, 12}, {7, 2, 16, 4}};

// The thread that loads models makes no other calls.
const auto kLoader = static_cast<unsigned>(kImages.size());

// A request takes an input, goes through layers, each of which needs the output of the one before
// and a workspace, and keeps a cache for each layer until it is answered.
void answer(unsigned thread, unsigned images, Calls* calls) {
  constexpr unsigned kDepth = 8;
  const auto get = [&](unsigned block, size_t kib) {
    calls->push_back({thread, block, images * kib * kKiB});
  };
  const auto give_back = [&](unsigned block) { calls->push_back({thread, block, 0}); };
  get(0, 69);
  for (unsigned i = 0; i < kDepth; ++i) {
    get(100, 50 + 9 * i);
    get(1 + i, 68 + 7 * (i * 3 % 8));
    get(50 + i, 66 + 5 * (i % 3));
    give_back(100);
    give_back(i);
  }
  give_back(kDepth);
  for (unsigned i = 0; i < kDepth; ++i) give_back(50 + i);
}

struct OneThread {
  Calls calls;
  size_t peak;  // the call behind which most is live
};

OneThread requests_of(unsigned thread) {
  OneThread out{};
  for (const unsigned images : kImages[thread]) answer(thread, images, &out.calls);
  std::map<unsigned, size_t> live;
  size_t now = 0, most = 0;
  for (size_t i = 0; i < out.calls.size(); ++i) {
    const Call& call = out.calls[i];
    now += call.bytes - live[call.block];
    live[call.block] = call.bytes;
    if (now > most) most = now, out.peak = i + 1;
  }
  return out;
}

// Each thread makes the calls of its requests so many times. `meet`: in the first of them all wait
// for each other at their peaks.
Calls serving(unsigned times, bool meet, Random* random) {
  std::vector<OneThread> all;
  std::vector<size_t> made(kImages.size()), stop;
  for (unsigned i = 0; i < kImages.size(); ++i) all.push_back(requests_of(i));
  Calls calls;
  const auto go_on = [&] {
    size_t left = 0;
    for (unsigned i = 0; i < all.size(); ++i) left += stop[i] - made[i];
    for (; left != 0; --left) {
      unsigned thread = random->below(static_cast<unsigned>(all.size()));
      while (made[thread] == stop[thread]) thread = (thread + 1) % all.size();
      calls.push_back(all[thread].calls[made[thread]++ % all[thread].calls.size()]);
    }
  };
  if (meet) {
    for (const OneThread& one : all) stop.push_back(one.peak);
    go_on();
    calls.push_back({kLoader, 300, kOneBuffer});
  }
  stop.clear();
  for (const OneThread& one : all) stop.push_back(times * one.calls.size());
  go_on();
  return calls;
}

// The log that will tell of a plan, where one is made; or nullptr.
const char* plan_log() {
  const char* plan = std::getenv("CISTERN_PLAN");
  const bool made = plan != nullptr && std::strcmp(plan, "auto") == 0;
  return made ? std::getenv("CISTERN_LOG_FILE") : nullptr;
}

bool planned() {
  if (plan_log() == nullptr) return true;
  std::ifstream log(plan_log());
  for (std::string line; std::getline(log, line);) {
    if (line.find("a plan for them") != line.npos) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  const unsigned times = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 0;
  if ((what != "train" && what != "serve") || times == 0) {
    std::fprintf(stderr, "usage: fragmenting train|serve TIMES\n");
    return 2;
  }
  const bool serves = what == "serve";
  unsigned long long* verdict = nullptr;
  CHECK(cudaMalloc(&verdict, 2 * sizeof *verdict));
  CHECK(cudaMemset(verdict, 0, 2 * sizeof *verdict));
  CHECK(cudaDeviceSynchronize());
  {
    Threads threads(serves ? kLoader + 1 : 1, verdict);
    const unsigned loader = serves ? kLoader : 0;
    Calls weights;
    for (unsigned i = 0; i < kWeights; ++i) weights.push_back({loader, 400 + i, kWeight});
    threads.run(weights);
    Random random(1);
    const auto go_on = [&](bool half_way) {
      threads.run(serves ? serving(1, half_way, &random) : training_step(half_way));
    };
    unsigned done = 0;
    while (done++ < times || !planned()) go_on(false);
    // The plan's memory is asked for where a period begins, without a wait for work in flight.
    for (int i = 0; plan_log() != nullptr && i < 4; ++i) {
      CHECK(cudaDeviceSynchronize());
      go_on(false);
    }
    for (unsigned i = 0; i < times; ++i) go_on(i == times / 2);
  }
  unsigned long long found[2];
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(found, verdict, sizeof found, cudaMemcpyDeviceToHost));
  std::printf("damaged words %llu\n", found[0]);
  std::fprintf(stderr, "peak live bytes %zu\n", g_peak);
  return found[0] == 0 ? 0 : 1;
}
