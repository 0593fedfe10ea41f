// SPDX-License-Identifier: Apache-2.0
//
// Loops as programs have them, for the pool alone: a training loop whose sizes come back, one whose
// sequence lengths are drawn anew, and random sizes. What a pool reserved at most is held against
// the least that units of 2 MiB could do: requests of a unit and more rounded up to whole ones, the
// smaller ones packed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace cistern::bench {

inline constexpr uint64_t kKiB = uint64_t{1} << 10, kMiB = uint64_t{1} << 20, kUnit = 2 * kMiB;

// `calls`: of the driver, in each iteration (or 1000 operations) of the second half.
struct Figures {
  double reserved_per_live, calls;
  uint64_t operations;
};

// `Pool` has allocate(), free(), reserved_peak() and calls().
template <typename Pool>
class Loop {
 public:
  struct Block {
    uint64_t address, bytes;
  };

  explicit Loop(Pool& pool) : pool_(pool) {}

  Block allocate(uint64_t bytes) {
    ++operations_;
    (bytes >= kUnit ? whole_ : small_) += charged(bytes);
    peak_ = std::max(peak_, whole_ + round_up(small_));
    return {pool_.allocate(bytes), bytes};
  }
  void free(const Block& block) {
    ++operations_;
    (block.bytes >= kUnit ? whole_ : small_) -= charged(block.bytes);
    pool_.free(block.address);
  }

  void half_done() { calls_at_half_ = pool_.calls(); }
  // After so many iterations since then.
  Figures figures(double iterations) const {
    return {static_cast<double>(pool_.reserved_peak()) / static_cast<double>(peak_),
            static_cast<double>(pool_.calls() - calls_at_half_) / iterations, operations_};
  }

 private:
  static uint64_t round_up(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }
  static uint64_t charged(uint64_t bytes) { return bytes >= kUnit ? round_up(bytes) : bytes; }

  Pool& pool_;
  uint64_t whole_ = 0, small_ = 0, peak_ = 0, operations_ = 0, calls_at_half_ = 0;
};

// 24 layers: forward, each keeps five activations and uses a temporary block; backward, each of
// these is freed beside a gradient. With the weights up to 1.3 GiB are live.
template <typename Pool>
Figures training_loop(Pool& pool, bool lengths_change, int iterations) {
  Loop<Pool> loop(pool);
  for (uint64_t i = 0; i < 48; ++i) loop.allocate((4 + i % 5 * 3) * kMiB + 12345 * i);
  std::mt19937_64 random(1);
  std::vector<typename Loop<Pool>::Block> kept;
  for (int i = 0; i < iterations; ++i) {
    if (i == iterations / 2) loop.half_done();
    const uint64_t length = lengths_change ? 128 + random() % 1920 : 1024;
    for (int layer = 0; layer < 24; ++layer) {
      for (const uint64_t width : {2, 5, 8, 11})
        kept.push_back(loop.allocate(length * width * kKiB));
      loop.free(loop.allocate(length * length * 8));
      kept.push_back(loop.allocate(4 * kKiB + length));
    }
    for (; !kept.empty(); kept.pop_back()) {
      const auto gradient = loop.allocate(kept.back().bytes / 2 + 1);
      loop.free(kept.back());
      loop.free(gradient);
    }
  }
  return loop.figures(iterations - iterations / 2);
}

// Sizes from 512 bytes on, uniform in their logarithm; about 600 blocks are live, and any of them
// is freed.
template <typename Pool>
Figures random_sizes(Pool& pool, uint64_t most, int operations, unsigned seed) {
  constexpr size_t kLive = 600;
  Loop<Pool> loop(pool);
  std::mt19937_64 random(seed);
  const auto draw = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<typename Loop<Pool>::Block> live;
  for (int i = 0; i < operations; ++i) {
    if (i == operations / 2) loop.half_done();
    if (live.size() < kLive || (live.size() < kLive + 12 && draw() < 0.5)) {
      const double size = 512 * std::pow(static_cast<double>(most) / 512, draw());
      live.push_back(loop.allocate(static_cast<uint64_t>(size)));
    } else {
      auto& any = live[random() % live.size()];
      loop.free(any);
      any = live.back();
      live.pop_back();
    }
  }
  return loop.figures((operations - operations / 2) / 1000.0);
}

}  // namespace cistern::bench
