// SPDX-License-Identifier: Apache-2.0
// Threads of one pool that free with nothing pending, and with a plan beside: no block is shared.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/allocator/chunk_pool.h"

namespace freed_last_threads_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

constexpr Ticket kNothingPending = 0;

}  // namespace

TEST_CASE("threads that free with nothing pending never share a block",
          "[freed_last][freed_model]") {
  constexpr int kThreads = 4, kSteps = 4000;
  for (const StrategyKind kind :
       {StrategyKind::on_demand, StrategyKind::naive_best_fit, StrategyKind::legacy}) {
    CAPTURE(static_cast<int>(kind));
    auto p = std::make_unique<Pool>(uint64_t{1} << 40, kind == StrategyKind::on_demand
                                                           ? ChunkSizes{}
                                                           : sizes(kind, 4 * kMiB, 4 * kMiB));
    std::vector<plan::PlannedRequest> requests;
    for (uint64_t i = 0; i < 32; ++i) {
      plan::PlannedRequest request{};
      request.bytes = 512 * (1 + i % 5);
      request.offset = i * 2560 % (20 * 2560);
      requests.push_back(request);
    }
    plan::PlanHead head{};
    head.period = plan::Period::iteration;
    head.requests = requests.size();
    head.bytes = 20 * 2560;
    head.alignment = 512;
    const plan::Plan plan(head, requests.data());
    p->set_plan(&plan);
    std::mutex mutex;
    std::map<uint64_t, uint64_t> live;
    std::atomic<int> wrong{0};
    std::atomic<uint64_t> at{0};
    const auto work = [&](unsigned number) {
      std::minstd_rand random(number + 1);
      std::vector<uint64_t> mine;
      for (int i = 0; i < kSteps; ++i) {
        if (mine.size() < 6 && random() % 2 == 0) {
          const uint64_t bytes = requests[at++ % requests.size()].bytes;
          uint64_t a = 0;
          if (!p->pool.allocate_planned(bytes, number, 0, &a)) p->pool.allocate(bytes, number, &a);
          const std::lock_guard guard(mutex);
          auto next = live.lower_bound(a);
          wrong += next != live.end() && next->first < a + bytes;
          wrong += next != live.begin() && std::prev(next)->second > a;
          live[a] = a + bytes;
          mine.push_back(a);
        } else if (!mine.empty()) {
          const uint64_t a = mine.front();
          mine.erase(mine.begin());
          {
            const std::lock_guard guard(mutex);
            live.erase(a);
          }
          int code;
          const Ticket latest = random() % 4 == 0 ? Reclaim::kNow : kNothingPending;
          wrong += p->pool.free(p->shared.index.find(a), a, &code, latest) != Freed::done;
          if (random() % 64 == 0) p->pool.release_excess();
          if (random() % 256 == 0) p->pool.release_clean();
        }
      }
      int code;
      for (const uint64_t a : mine) {
        {
          const std::lock_guard guard(mutex);
          live.erase(a);
        }
        p->pool.free(p->shared.index.find(a), a, &code, kNothingPending);
      }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(p->pool.usage().live == 0);
    p->synchronise();
    p->pool.release_freed();
    CHECK(p->source.held() == 0);
    CHECK(p->ledger.plan_served.get() != 0);
  }
}

}  // namespace freed_last_threads_test
