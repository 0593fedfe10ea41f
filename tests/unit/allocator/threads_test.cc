// SPDX-License-Identifier: Apache-2.0
// What several threads may do at once; meant for the thread sanitizer.
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"
#include "tests/unit/test_clock.h"

namespace threads_test {

using namespace cistern::alloc;
using cistern::test::kMiB;
using cistern::test::Pool;

namespace {

// Runs `other` again and again until `work` is done.
template <typename Work, typename Other>
void meanwhile(Work work, Other other) {
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    while (!stop) other();
  });
  work();
  stop = true;
  thread.join();
}

// The default and every chunk strategy, with chunks small enough that they come and go.
ChunkSizes any_strategy() {
  const auto kind =
      GENERATE(StrategyKind::on_demand, StrategyKind::legacy, StrategyKind::naive_best_fit,
               StrategyKind::auto_growth, StrategyKind::thread_local_);
  return {kind, 16 * kMiB, 8 * kMiB, 512, false, false};
}

void free_block(Pool& p, uint64_t address) {
  int code;
  p.pool.free(p.shared.index.find(address), address, &code);
}

}  // namespace

TEST_CASE("threads allocate, free each other's blocks and synchronise without a loss") {
  constexpr int kThreads = 4, kSteps = 3000;
  auto p = std::make_unique<Pool>(uint64_t{1} << 40, any_strategy());
  std::vector<std::atomic<uint64_t>> exchange(64);
  std::atomic<int> wrong{0};
  auto work = [&](unsigned me) {
    std::mt19937 random(me);
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t bytes =
          random() % 8 == 0 ? kMiB + random() % (3 * kMiB) : 1 + random() % 60000;
      uint64_t address = 0;
      if (p->pool.allocate(bytes, me % ContextPool::kShards, &address) != kSuccess) ++wrong;
      uint64_t start, size;
      if (!p->pool.find(p->shared.index.find(address), address, &start, &size) || size != bytes) {
        ++wrong;
      }
      const uint64_t other = exchange[random() % exchange.size()].exchange(address);
      int code;
      if (other != 0 && p->pool.free(p->shared.index.find(other), other, &code) != Freed::done) {
        ++wrong;
      }
      if (i % 64 == 0) p->synchronise();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  for (const auto& slot : exchange) {
    if (slot != 0) CHECK(p->free(slot) == Freed::done);
  }
  CHECK(p->pool.usage().live == 0);
  p->pool.release_returnable(1'000'000);
  CHECK(p->source.held() == 0);
  CHECK(p->pool.allocations() == kThreads * kSteps);
  CHECK(p->pool.frees() == kThreads * kSteps);
}

TEST_CASE("of two threads that free the same block one is told that it is invalid") {
  auto p = std::make_unique<Pool>(uint64_t{1} << 40, any_strategy());
  const uint64_t bytes = GENERATE(4096, 4 * kMiB);
  for (int round = 0; round < 200; ++round) {
    const uint64_t a = p->allocate(bytes);
    std::atomic<int> done{0};
    auto free_it = [&] {
      Chunk* chunk = p->shared.index.find(a);
      int code;
      if (p->pool.free(chunk, a, &code) == Freed::done) ++done;
    };
    std::thread other(free_it);
    free_it();
    other.join();
    REQUIRE(done == 1);
    p->synchronise();
  }
}

TEST_CASE("slabs that other threads empty meanwhile are not lost") {
  auto p = std::make_unique<Pool>();
  auto work = [&] {
    std::vector<uint64_t> blocks;
    for (int round = 0; round < 3000; ++round) {
      for (int i = 0; i < 40; ++i) {
        uint64_t address;
        if (p->pool.allocate(400 * 1024, 0, &address) == kSuccess) blocks.push_back(address);
      }
      for (const uint64_t address : blocks) free_block(*p, address);
      blocks.clear();
    }
  };
  auto both = [&] {
    std::thread other(work);
    work();
    other.join();
  };
  meanwhile(both, [&] { p->synchronise(); });
  p->synchronise();
  p->pool.release_returnable(1'000'000);
  CHECK(p->source.held() == 0);
  CHECK(p->ledger.reserved.get() == 0);
}

TEST_CASE("a context may end under threads that use it, again and again") {
  auto p = std::make_unique<Pool>(uint64_t{1} << 40, any_strategy());
  p->cap.set_limit(uint64_t{1} << 40);  // what is charged is counted under a limit only
  std::atomic<int> inside{0};
  auto work = [&](unsigned me) {
    std::mt19937 random(me);
    for (int i = 0; i < 300; ++i) {
      uint64_t address = 0;
      const uint64_t bytes = random() % 3 == 0 ? 3 * kMiB : 400 * 1024;
      const int code = p->pool.allocate(bytes, me % 2, &address);
      ++inside;
      if (code != kSuccess) continue;
      int freed;
      Chunk* chunk = p->shared.index.find(address);
      if (chunk != nullptr) p->pool.free(chunk, address, &freed);
      if (i % 32 == 0) p->pool.release_returnable(1'000'000);
    }
  };
  for (int round = 0; round < 30; ++round) {
    inside = 0;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; ++i) threads.emplace_back(work, i);
    while (inside < 60) p->synchronise();
    p->pool.forget_all();
    for (std::thread& thread : threads) thread.join();
    CHECK(p->allocate(4096) == 0);
    CHECK(p->code == kContextGone);
    CHECK(p->ledger.reserved.get() == 0);
    CHECK(p->cap.charged() == 0);
    p->init();
    const uint64_t small = p->allocate(4096), whole = p->allocate(3 * kMiB);
    CHECK(p->free(small) == Freed::done);
    CHECK(p->free(whole) == Freed::done);
  }
}

TEST_CASE("two threads that fit together are never told that memory is out") {
  auto p = std::make_unique<Pool>(200 * kMiB);
  std::atomic<int> refused{0};
  auto work = [&](unsigned me) {
    constexpr uint64_t kSizes[] = {100, 80, 60, 90};
    for (unsigned i = 0; i < 5000; ++i) {
      uint64_t address;
      if (p->pool.allocate(kSizes[(i + me) % 4] * kMiB, me, &address) == kSuccess) {
        free_block(*p, address);
      } else {
        ++refused;
      }
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  CHECK(refused == 0);
}

// Graph n, which holds what was born before it, goes under ticket kGraphs - n.
TEST_CASE("what a graph held waits for that graph's work, whatever else was let go before") {
  constexpr Epoch kGraphs = 20000;
  struct Item {
    Item* next;
    uint64_t stamp;
  };
  struct Links {
    static Item*& next(Item* i) { return i->next; }
    static uint64_t stamp(const Item* i) { return i->stamp; }
    static void set_stamp(Item* i, uint64_t stamp) { i->stamp = stamp; }
    static uint64_t bytes(const Item*) { return 1; }
  };
  auto reclaim = std::make_unique<Reclaim>();
  FreedQueue<Item, Links> freed;
  std::vector<Item> items(kGraphs);
  GraphLives& lives = reclaim->graphs();
  std::vector<GraphLife> alive(kGraphs);
  for (GraphLife& life : alive) lives.hold(&life, 0, 0);
  for (Epoch born = 0; born < kGraphs; ++born) freed.push(&items[born], born, *reclaim);
  REQUIRE(freed.parked_bytes() == kGraphs);
  std::thread graphs([&] {
    for (Epoch n = kGraphs; n > 0; --n) {
      reclaim->close();
      lives.release(&alive[n - 1], reclaim->open());
    }
  });
  Epoch left = kGraphs;
  int early = 0;
  while (left > 0) {
    freed.unpark(*reclaim);
    for (; freed.has_clean(~Ticket{0}); --left) {
      const Item* item = freed.pop();
      const auto born = static_cast<Epoch>(item - items.data());
      early += item->stamp < kGraphs - born ? 1 : 0;
    }
  }
  graphs.join();
  CHECK(early == 0);
}

TEST_CASE("threads that miss at once share the chunk that one of them takes") {
  auto p = std::make_unique<Pool>(
      uint64_t{1} << 40, ChunkSizes{StrategyKind::legacy, 64 * kMiB, 64 * kMiB, 512, false, false});
  std::atomic<int> waiting{0};
  const uint64_t waits = test_clock_waits();
  p->source.on_obtain = [&] {
    // Both threads have missed, and the other one waits.
    while (waiting < 2) std::this_thread::yield();
    cistern::test::until_someone_waits(waits);
  };
  auto work = [&] {
    ++waiting;
    uint64_t address;
    p->pool.allocate(kMiB, 0, &address);
  };
  std::thread other(work);
  work();
  other.join();
  CHECK(p->source.asked.size() == 1);
}

TEST_CASE("a request beyond the cap does not make others fail") {
  Cap cap;
  cap.set_limit(1024 * kMiB);
  int refused = 0;
  auto work = [&] {
    for (int i = 0; i < 200000; ++i) {
      if (cap.charge(kMiB)) {
        cap.refund(kMiB);
      } else {
        ++refused;
      }
    }
  };
  meanwhile(work, [&] { cap.charge(2048 * kMiB); });
  CHECK(refused == 0);
  CHECK(cap.charged() == 0);
}

TEST_CASE("the peak of live memory never wraps") {
  auto p = std::make_unique<Pool>();
  auto churn = [&] {
    uint64_t address;
    if (p->pool.allocate(900 * 1024, 1, &address) == kSuccess) free_block(*p, address);
    p->synchronise();
  };
  auto work = [&] {
    for (int i = 0; i < 300000; ++i) {
      uint64_t address;
      if (p->pool.allocate_direct(512, 0, /*pooled=*/true, &address) == kSuccess)
        free_block(*p, address);
    }
  };
  meanwhile(work, churn);
  CHECK(p->ledger.live_peak.get() >= 512);
  CHECK(p->ledger.live_peak.get() <= 4 * kMiB);
}

TEST_CASE("a context may make way for the next while another thread adds up what the pools hold") {
  auto p = std::make_unique<Pool>(uint64_t{1} << 40, any_strategy());
  uint64_t most = 0;  // whatever is added up: none of it may wrap
  auto work = [&] {
    for (int i = 0; i < 300; ++i) {
      for (const uint64_t bytes : {uint64_t{4096}, 3 * kMiB}) free_block(*p, p->allocate(bytes));
      p->pool.forget_all();
      p->init();
    }
  };
  meanwhile(work, [&] {
    const Usage usage = p->pool.usage();
    most = std::max({most, usage.idle + usage.waiting, p->pool.allocations() + p->pool.frees()});
  });
  CHECK(most <= 64 * kMiB);
}

}  // namespace threads_test
