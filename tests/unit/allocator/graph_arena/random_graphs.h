// SPDX-License-Identifier: Apache-2.0
// Random graphs on several threads, some of whose blocks outlive them.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/allocator/graph_arena/arena_pool.h"

namespace cistern::test {

// False if two live blocks overlapped, or a free failed. In the end everything is freed.
class RandomGraphs {
 public:
  explicit RandomGraphs(Pool& p) : p_(p) {}

  bool run(unsigned count) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; ++i) threads.emplace_back([this, i] { work(i); });
    for (std::thread& thread : threads) thread.join();
    return right_;
  }

 private:
  void work(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<uint64_t> own;
    for (int graph = 0; graph < 60; ++graph) {
      const uint32_t number = ++runs_, name = 1 + static_cast<uint32_t>(random() % 5);
      const auto requests = static_cast<unsigned>(20 + random() % 40);
      p_.source.begin_graph(number);
      for (unsigned i = 0; i < requests; ++i) {
        const uint64_t bytes = 1 + random() % (i % 7 == 0 ? 3 * kMiB : 40'000);
        uint64_t address = 0;
        const alloc::GraphRun run{number, name};
        if (p_.pool.allocate_in_graph(bytes, seed, run, &address) != alloc::kSuccess) continue;
        own.push_back(address);
        note(address, bytes);
      }
      p_.source.end_graph(number);
      while (own.size() > random() % 8) free_one(own, random);
    }
    while (!own.empty()) free_one(own, random);
  }

  void note(uint64_t address, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    const auto next = live_.lower_bound(address);
    if (next != live_.end() && next->first < address + bytes) right_ = false;
    if (next != live_.begin() && std::prev(next)->second > address) right_ = false;
    live_[address] = address + bytes;
  }

  void free_one(std::vector<uint64_t>& own, std::mt19937& random) {
    std::swap(own[random() % own.size()], own.back());
    {
      const std::lock_guard guard(mutex_);
      live_.erase(own.back());
    }
    int code;
    alloc::Chunk* chunk = p_.shared.index.find(own.back());
    if (p_.pool.free(chunk, own.back(), &code) != alloc::Freed::done) right_ = false;
    own.pop_back();
  }

  Pool& p_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> live_;  // start to end
  std::atomic<uint32_t> runs_{0};
  std::atomic<bool> right_{true};
};

}  // namespace cistern::test
