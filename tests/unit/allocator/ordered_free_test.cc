// SPDX-License-Identifier: Apache-2.0
// Frees in the order of a stream: what no pool takes back goes by the program's own call, which
// waits for no other stream.
#include <memory>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/chunk_pool.h"

namespace ordered_free_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

constexpr uint64_t kBlock = 64 * 1024;
constexpr int kRefused = 700;

// The driver's call, and what it answers.
class Calls final : public OrderedFree {
 public:
  int free(uint64_t address) const override {
    made.push_back(address);
    return code;
  }
  mutable std::vector<uint64_t> made;
  int code = kSuccess;
};

Freed free_ordered(Pool& p, uint64_t address, const Calls& calls) {
  Chunk* chunk = p.shared.index.find(address);
  if (chunk == nullptr) return Freed::foreign;
  uint64_t bytes;
  return p.pool.free_ordered(chunk, address, &p.code, calls, &bytes);
}

void mark_exported(Pool& p, uint64_t address) {
  REQUIRE(p.pool.mark_exported(p.shared.index.find(address), address));
}

uint64_t allocate_apart(Pool& p, bool exported, uint64_t bytes) {
  if (!exported) return p.allocate_unpooled(bytes);
  const uint64_t a = p.allocate(bytes);
  mark_exported(p, a);
  return a;
}

std::unique_ptr<Pool> busy_pool_of(StrategyKind kind, uint64_t capacity_mib = 1024) {
  auto p = pool(kind, 16, 16, capacity_mib);
  p->source.passed_mark = 0;
  return p;
}

}  // namespace

TEST_CASE("a driver allocation of its own is freed by the program's call, and is gone") {
  auto p = std::make_unique<Pool>();
  const uint64_t a = allocate_apart(*p, GENERATE(false, true), 3 * kMiB);
  Calls calls;
  CHECK(free_ordered(*p, a + 1, calls) == Freed::invalid);
  CHECK(free_ordered(*p, a, calls) == Freed::done);
  CHECK(calls.made == std::vector{a});
  CHECK(p->code == kSuccess);
  CHECK(p->shared.index.find(a) == nullptr);
  CHECK(p->source.held() == 0);
  CHECK(p->ledger.released.get() == 1);
  CHECK(p->ledger.reserved.get() == 0);
  CHECK(p->ledger.live.get() == 0);
  CHECK(p->pool.frees() == 1);
  CHECK(p->pool.usage().live == 0);
  CHECK_FALSE(p->pool.waiting_bytes());
  CHECK(free_ordered(*p, a, calls) == Freed::foreign);
}

TEST_CASE("one that the driver does not free is the program's still") {
  auto p = std::make_unique<Pool>();
  const uint64_t a = allocate_apart(*p, GENERATE(false, true), 3 * kMiB);
  Calls calls;
  calls.code = kRefused;
  CHECK(free_ordered(*p, a, calls) == Freed::done);
  CHECK(p->code == kRefused);
  CHECK(p->ledger.live.get() == 3 * kMiB);
  CHECK(p->ledger.released.get() == 0);
  CHECK(p->pool.frees() == 0);
  CHECK(p->pool.is_live(p->shared.index.find(a), a + 3 * kMiB - 1));
  calls.code = kSuccess;
  CHECK(free_ordered(*p, a, calls) == Freed::done);
  CHECK(p->code == kSuccess);
  CHECK(p->ledger.live.get() == 0);
  CHECK(p->source.held() == 0);
}

TEST_CASE("a block of a pool never goes by that call") {
  auto p = busy_pool_of(GENERATE(StrategyKind::on_demand, StrategyKind::auto_growth));
  const Calls calls;
  for (const uint64_t bytes : {kBlock, 3 * kMiB}) {
    const uint64_t a = p->allocate(bytes);
    CHECK(free_ordered(*p, a, calls) == Freed::done);
    CHECK(free_ordered(*p, a, calls) == Freed::invalid);
  }
  CHECK(calls.made.empty());
  CHECK(p->source.released == 0);
}

}  // namespace ordered_free_test
