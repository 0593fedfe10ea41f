// SPDX-License-Identifier: Apache-2.0
// Random programs against a plain model of the garbage rules: a list of what was freed, sorted anew
// at each flush. Two contexts of one device share the queue.
#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace garbage_model_test {

using namespace cistern::alloc;
using cistern::test::FakeSource;
using cistern::test::kMiB;
using When = GarbageRules::When;

namespace {

constexpr int kContexts = 2;

// One device with two contexts.
struct Device {
  Device(const GarbageRules& rules, StrategyKind kind) {
    garbage.init(rules, &shared.reclaim);
    for (int i = 0; i < kContexts; ++i) {
      shared.reclaim.join(static_cast<uint32_t>(i), &sources[i]);
      init(i, kind);
    }
  }

  void init(int context, StrategyKind kind) {
    pools[context].init(
        &shared, &sources[context], {&ledger, &cap, garbage.on() ? &garbage : nullptr},
        static_cast<uint32_t>(context), {kind, 16 * kMiB, 16 * kMiB, 512, false, false});
  }

  uint64_t allocate(int context, uint64_t bytes, unsigned shard) {
    uint64_t address = 0;
    pools[context].allocate(bytes, shard, &address);
    return address;
  }
  bool free(int context, uint64_t address) {
    int code;
    return pools[context].free(shared.index.find(address), address, &code) == Freed::done;
  }
  void synchronise(int context) {
    const Ticket ticket = shared.reclaim.close();
    shared.reclaim.passed(static_cast<uint32_t>(context), ticket);
    pools[context].synchronised(ticket);
  }

  Shared shared{};
  Ledger ledger{};
  Cap cap{};
  Garbage garbage{};
  FakeSource sources[kContexts] = {FakeSource(1ull << 40), FakeSource(1ull << 40, 1ull << 45)};
  ContextPool pools[kContexts]{};
};

struct Piece {
  int context;
  uint64_t address, bytes;
};

class Model {
 public:
  explicit Model(const GarbageRules& rules) : rules_(rules) {}

  void free(const Piece& block) {
    (rules_.when == When::at_threshold ? collected : kept).push_back(block);
    if (rules_.when == When::at_threshold && bytes(collected) >= rules_.threshold) flush();
  }

  void synchronise(int context) {
    std::erase_if(kept, [&](const Piece& block) { return block.context == context; });
  }

  void drain() {
    collected.clear();
    kept.clear();
  }

  static uint64_t bytes(const std::vector<Piece>& blocks, int context = -1) {
    uint64_t sum = 0;
    for (const Piece& block : blocks) {
      if (context < 0 || block.context == context) sum += block.bytes;
    }
    return sum;
  }

  bool holds_back(const Piece& block) const {
    const auto overlaps = [&](const Piece& other) {
      return other.context == block.context && other.address < block.address + block.bytes &&
             block.address < other.address + other.bytes;
    };
    return std::any_of(collected.begin(), collected.end(), overlaps) ||
           std::any_of(kept.begin(), kept.end(), overlaps);
  }

  std::vector<Piece> collected, kept;  // in the order of the frees
  int flushes = 0;

 private:
  void flush() {
    ++flushes;
    const double wanted = rules_.fraction * static_cast<double>(bytes(collected));
    std::stable_sort(collected.begin(), collected.end(),
                     [](const Piece& a, const Piece& b) { return a.bytes > b.bytes; });
    uint64_t released = 0;
    for (const Piece& block : collected) {
      if (static_cast<double>(released) < wanted) {
        released += block.bytes;
      } else {
        kept.push_back(block);
      }
    }
    collected.clear();
  }

  GarbageRules rules_;
};

uint64_t rounded(uint64_t bytes) { return (bytes + 511) / 512 * 512; }

}  // namespace

TEST_CASE("random frees, flushes, synchronisations and shortages follow the model",
          "[one-thread]") {
  const unsigned seed = GENERATE(1u, 2u, 3u, 4u, 5u, 6u);
  const GarbageRules rules = GENERATE(
      GarbageRules{When::at_threshold, 3 * kMiB, 1}, GarbageRules{When::at_threshold, 200'000, 0.5},
      GarbageRules{When::at_threshold, 20 * kMiB, 0.7}, GarbageRules{When::at_threshold, 1, 0.3},
      GarbageRules{When::at_synchronise, 0, 1});
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy,
                             StrategyKind::naive_best_fit, StrategyKind::thread_local_);
  CAPTURE(seed, rules.threshold, rules.fraction, static_cast<int>(kind));
  auto device = std::make_unique<Device>(rules, kind);
  Model model(rules);
  std::mt19937 random(seed);
  std::vector<Piece> live;
  for (int step = 0; step < 1500; ++step) {
    const int context = static_cast<int>(random() % kContexts);
    const auto what = random() % 100;
    if (what < 50) {
      // Few sizes, so that many are equal; large ones in whole pages, so that none is rounded.
      const uint64_t bytes = random() % 6 == 0   ? 4 * kMiB * (1 + random() % 2)
                             : random() % 2 == 0 ? 512 * (1 + random() % 40)
                                                 : 1 + random() % 100'000;
      Piece block{context, 0, rounded(bytes)};
      block.address = device->allocate(context, bytes, static_cast<unsigned>(random() % 4));
      REQUIRE(block.address != 0);
      REQUIRE_FALSE(model.holds_back(block));
      live.push_back(block);
    } else if (what < 96 && !live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      REQUIRE(device->free(live.back().context, live.back().address));
      model.free(live.back());
      live.pop_back();
    } else if (what < 98) {
      device->synchronise(context);
      model.synchronise(context);
    } else if (what == 98 && random() % 4 == 0) {
      device->pools[context].release_returnable(1'000'000);
      model.drain();
    }
    REQUIRE(device->garbage.until_threshold.get() == Model::bytes(model.collected));
    REQUIRE(device->garbage.until_synchronise.get() == Model::bytes(model.kept));
    for (int i = 0; i < kContexts; ++i) {
      REQUIRE(device->pools[i].usage().garbage ==
              Model::bytes(model.collected, i) + Model::bytes(model.kept, i));
    }
  }
  CHECK(device->garbage.flushes.get() == static_cast<uint64_t>(model.flushes));
}

TEST_CASE("threads free, flush, synchronise and run short while a context comes and goes") {
  const GarbageRules rules = GENERATE(GarbageRules{When::at_threshold, kMiB, 1},
                                      GarbageRules{When::at_threshold, 100'000, 0.4},
                                      GarbageRules{When::at_synchronise, 0, 1});
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::thread_local_);
  constexpr unsigned kThreads = 3;
  auto device = std::make_unique<Device>(rules, kind);
  std::atomic<int> wrong{0};
  std::atomic<bool> stop{false};
  const auto work = [&](unsigned me) {
    std::mt19937 random(me);
    std::vector<uint64_t> live;
    for (int i = 0; i < 2000; ++i) {
      const uint64_t bytes = random() % 8 == 0 ? kMiB + random() % kMiB : 1 + random() % 30'000;
      live.push_back(device->allocate(0, bytes, me));
      wrong += live.back() == 0;
      if (live.size() > 20) {
        std::swap(live[random() % live.size()], live.back());
        wrong += !device->free(0, live.back());
        live.pop_back();
      }
      if (i % 100 == 0) device->synchronise(0);
      if (i % 500 == 0) device->pools[0].release_returnable(1'000'000);
    }
    for (const uint64_t address : live) wrong += !device->free(0, address);
  };
  std::thread coming_and_going([&] {
    while (!stop) {
      for (unsigned i = 0; i < 20; ++i) {
        const uint64_t address = device->allocate(1, 1000 + 50'000 * (i % 3), 0);
        wrong += address == 0 || !device->free(1, address);
      }
      device->pools[1].forget_all();
      device->init(1, kind);
    }
  });
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  stop = true;
  coming_and_going.join();
  CHECK(wrong == 0);
  CHECK(device->garbage.until_threshold.get() + device->garbage.until_synchronise.get() ==
        device->pools[0].usage().garbage + device->pools[1].usage().garbage);
  device->pools[0].release_returnable(1'000'000);
  CHECK(device->garbage.until_threshold.get() + device->garbage.until_synchronise.get() == 0);
  CHECK(device->sources[0].held() == 0);
}

}  // namespace garbage_model_test
