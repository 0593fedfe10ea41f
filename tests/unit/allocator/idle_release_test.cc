// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/idle_release.h"

#include <memory>

#include "tests/catch.h"
#include "tests/unit/allocator/chunk_pool.h"

namespace idle_release_test {

using namespace cistern::alloc;
using cistern::test::kMiB;
using cistern::test::Pool;
using cistern::test::sizes;
using cistern::test::virtual_clock;
using cistern::test::virtual_ms;

namespace {

IdleRelease rule(uint64_t idle_ms, uint64_t keep_mb = 0) {
  virtual_ms = 1000;
  cistern::config::Policy policy = cistern::config::default_policy();
  policy.free_idle_memory = {true, true};
  policy.idle_ms = {idle_ms, true};
  policy.idle_keep_mb = {keep_mb, true};
  IdleRelease r = idle_release(policy);
  r.clock = virtual_clock;
  return r;
}

// A pool whose idle memory goes back after 800 ms: a tick is 100 ms.
std::unique_ptr<Pool> aging_pool(uint64_t keep_mb = 0, const ChunkSizes& chunks = {}) {
  auto p = std::make_unique<Pool>(uint64_t{1} << 40, chunks);
  p->shared.idle = rule(800, keep_mb);
  p->init();
  return p;
}

// As the background thread does: a look each tick. True as long as there is more to do.
bool pass(Pool& p, uint64_t ms) {
  bool more = true;
  for (const uint64_t end = virtual_ms + ms; virtual_ms < end;) {
    virtual_ms += 100;
    more = p.pool.work_in_background();
  }
  return more;
}

uint64_t tended(const Pool& p) {
  return p.ledger.aged[static_cast<int>(WorkedBy::background)].get();
}
uint64_t called(const Pool& p) { return p.ledger.aged[static_cast<int>(WorkedBy::call)].get(); }

}  // namespace

TEST_CASE("the delay has eight ticks, and one more makes sure that all of it has passed") {
  const IdleRelease r = rule(1000);
  CHECK(r.on);
  CHECK(r.no_budget);
  CHECK(r.tick_ns == 125'000'000);
  CHECK(r.due == 9);
  CHECK(rule(3).tick_ns == 1'000'000);
  CHECK(rule(3).due == 4);
  CHECK(rule(0).due == 0);
  CHECK(rule(86'400'000).due == 9);
}

TEST_CASE("ages go on where the ticks begin anew") {
  IdleRelease r = rule(800);
  virtual_ms = uint64_t{100} * (kTicksInAll - 1);
  const Tick before = r.now();
  virtual_ms += 300;
  CHECK(r.now() != kNotSeen);
  CHECK(age(r.now(), before) == 3);
}

TEST_CASE("nothing set, idle memory has no age") {
  const IdleRelease r = idle_release(cistern::config::default_policy());
  CHECK_FALSE(r.on);
  CHECK_FALSE(r.no_budget);
  CHECK_FALSE(r.defer);
}

TEST_CASE("a chunk goes back once it was idle for the delay, and not before") {
  auto p = aging_pool();
  const uint64_t bytes = GENERATE(4096, 5 * kMiB);
  p->free(p->allocate(bytes));
  CHECK(pass(*p, 800));
  CHECK(p->source.released == 0);
  CHECK_FALSE(pass(*p, 300));
  CHECK(p->source.released == 1);
  CHECK(p->source.held() == 0);
  CHECK(tended(*p) == 1);
}

TEST_CASE("memory that waits has no age yet") {
  auto p = aging_pool();
  p->source.passed_mark = 0;
  const uint64_t bytes = GENERATE(4096, 5 * kMiB);
  p->free(p->allocate(bytes));
  CHECK(pass(*p, 10'000));
  CHECK(p->source.released == 0);
  p->source.passed_mark = ~Mark{0};
  CHECK(pass(*p, 800));
  CHECK(p->source.released == 0);
  CHECK_FALSE(pass(*p, 300));
  CHECK(p->source.held() == 0);
}

TEST_CASE("each use starts the age anew") {
  auto p = aging_pool();
  const uint64_t bytes = GENERATE(4096, 5 * kMiB);
  for (int i = 0; i < 50; ++i) {
    const uint64_t a = p->allocate(bytes);
    REQUIRE(a != 0);
    pass(*p, 200);
    p->free(a);
    pass(*p, 500);
  }
  CHECK(p->source.obtained == 1);
  CHECK(p->source.released == 0);
}

TEST_CASE("what is live in part stays") {
  auto p = aging_pool();
  p->free(p->allocate(4096));
  const uint64_t a = p->allocate(4096);
  CHECK_FALSE(pass(*p, 5000));
  CHECK(p->source.released == 0);
  CHECK(p->free(a) == Freed::done);
}

TEST_CASE("the oldest chunks go first, and never so that less is idle than is to be kept") {
  auto p = aging_pool(/*keep_mb=*/12);
  uint64_t blocks[4];
  for (uint64_t& block : blocks) block = p->allocate(5 * kMiB);
  for (const int i : {2, 0, 3, 1}) {
    p->free(blocks[i]);
    pass(*p, 100);
  }
  pass(*p, 3000);
  CHECK_FALSE(pass(*p, 3000));
  CHECK(p->source.released == 1);
  CHECK(p->shared.index.find(blocks[2]) == nullptr);
  CHECK(p->pool.usage().idle == 15 * kMiB);
}

TEST_CASE("of idle chunks a younger one goes where the oldest is more than may go") {
  const bool chunked = GENERATE(false, true);
  const ChunkSizes chunks = chunked ? sizes(StrategyKind::auto_growth, 0, 0) : ChunkSizes{};
  auto p = aging_pool(/*keep_mb=*/22, chunks);
  const uint64_t large = p->allocate(20 * kMiB), small = p->allocate(4 * kMiB);
  const uint64_t smaller = p->allocate(2 * kMiB);
  for (const uint64_t block : {large, small, smaller}) {
    p->free(block);
    pass(*p, 100);
  }
  CHECK(pass(*p, 700));
  pass(*p, 3000);
  CHECK_FALSE(pass(*p, 3000));
  CHECK(p->shared.index.find(large) != nullptr);
  CHECK(p->shared.index.find(small) == nullptr);
  CHECK(p->shared.index.find(smaller) != nullptr);
}

TEST_CASE("what is kept counts for the device, not for each context") {
  auto p = aging_pool(/*keep_mb=*/10);
  auto other = std::make_unique<ContextPool>();
  other->init(&p->shared, &p->source, {&p->ledger, &p->cap}, 1, p->sizes);
  uint64_t theirs;
  int code;
  REQUIRE(other->allocate(10 * kMiB, 0, &theirs) == kSuccess);
  p->free(p->allocate(10 * kMiB));
  CHECK_FALSE(pass(*p, 2000));
  CHECK(p->source.released == 0);
  REQUIRE(other->free(p->shared.index.find(theirs), theirs, &code) == Freed::done);
  other->work_in_background();
  pass(*p, 1000);
  CHECK(p->source.released == 1);
  other->forget_all();
  CHECK(p->ledger.idle_chunks.get() == 0);
}

TEST_CASE("frees look after what has become old, too") {
  auto p = aging_pool();
  const uint64_t a = p->allocate(5 * kMiB);
  const uint64_t bytes = GENERATE(4096, 3 * kMiB);
  p->free(a);
  for (int i = 0; i < 12; ++i) {
    virtual_ms += 100;
    p->free(p->allocate(bytes));
  }
  CHECK(p->shared.index.find(a) == nullptr);
  CHECK(called(*p) == 1);
  CHECK(tended(*p) == 0);
}

TEST_CASE("a chunk of a chunk strategy goes back when nothing in it is live nor waits") {
  const StrategyKind kind = GENERATE(StrategyKind::legacy, StrategyKind::naive_best_fit,
                                     StrategyKind::auto_growth, StrategyKind::thread_local_);
  auto p = aging_pool(0, sizes(kind, 16 * kMiB, 16 * kMiB));
  p->source.passed_mark = 0;
  const uint64_t a = p->allocate(15 * kMiB), b = p->allocate(15 * kMiB);
  const int chunks = p->source.obtained;
  p->free(a);
  p->free(b);
  pass(*p, 2000);
  CHECK(p->source.released == 0);
  p->source.passed_mark = ~Mark{0};
  pass(*p, 800);
  CHECK(p->source.released == 0);
  CHECK_FALSE(pass(*p, 300));
  CHECK(p->source.released == chunks);
  CHECK(p->source.held() == 0);
  CHECK(p->allocate(15 * kMiB) != 0);
}

TEST_CASE(
    "chunks of a chunk strategy in use by turns are not returned, and the oldest goes first") {
  auto p = aging_pool(/*keep_mb=*/16, sizes(StrategyKind::legacy, 16 * kMiB, 16 * kMiB));
  uint64_t blocks[3];
  for (uint64_t& block : blocks) block = p->allocate(15 * kMiB);
  for (const int i : {1, 2, 0}) {
    p->free(blocks[i]);
    pass(*p, 200);
  }
  pass(*p, 3000);
  CHECK(p->source.released == 2);
  CHECK(p->shared.index.find(blocks[0]) != nullptr);
  for (int i = 0; i < 20; ++i) {
    const uint64_t a = p->allocate(15 * kMiB);
    REQUIRE(a == blocks[0]);
    p->free(a);
    pass(*p, 500);
  }
  CHECK(p->source.released == 2);
}

TEST_CASE("nothing goes back while a capture is in progress, and nothing is lost by it") {
  const bool chunked = GENERATE(false, true);
  auto p =
      aging_pool(0, chunked ? sizes(StrategyKind::legacy, 16 * kMiB, 16 * kMiB) : ChunkSizes{});
  const uint64_t a = p->allocate(5 * kMiB);
  p->free(a);
  pass(*p, 100);
  p->source.capturing = true;
  CHECK(pass(*p, 3000));
  CHECK(p->source.released == 0);
  p->source.capturing = false;
  CHECK_FALSE(pass(*p, 100));
  CHECK(p->source.released == 1);
}

TEST_CASE("where the driver takes clean memory without a wait, it is asked for that") {
  auto p = aging_pool();
  p->source.may_take_clean = true;
  p->free(p->allocate(5 * kMiB));
  pass(*p, 2000);
  CHECK(p->source.taken_clean == 1);
  CHECK(p->source.held() == 0);
}

TEST_CASE("set explicitly, the flag switches the idle budget off") {
  const bool on = GENERATE(false, true);
  auto p = std::make_unique<Pool>();
  p->shared.idle = rule(800);
  p->shared.idle.on = on;
  p->init();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(p->allocate(4 * kMiB));
  for (const uint64_t a : blocks) p->free(a);
  p->synchronise();
  p->pool.release_excess();
  CHECK(p->source.released == 0);
  CHECK(p->pool.usage().idle == 400 * kMiB);
}

TEST_CASE("a lone chunk the driver does not take back is offered again after another delay") {
  auto p = aging_pool();
  p->free(p->allocate(5 * kMiB));
  p->source.fail_release = kNotNow;
  CHECK(pass(*p, 1000));
  p->source.fail_release = 0;
  CHECK(pass(*p, 800));
  CHECK(p->source.held() != 0);
  CHECK_FALSE(pass(*p, 300));
  CHECK(p->source.held() == 0);
}

TEST_CASE("where nobody tends the pool, frees that put off their work still release what is old") {
  auto p = aging_pool();
  p->shared.idle.defer = true;
  p->init();
  p->source.attends = false;
  const uint64_t old = p->allocate(5 * kMiB);
  p->free(old);
  for (int i = 0; i < 12; ++i) {
    virtual_ms += 100;
    p->free(p->allocate(3 * kMiB));
  }
  CHECK(p->shared.index.find(old) == nullptr);
  CHECK(called(*p) == 1);
}

TEST_CASE(
    "somebody is asked to tend what a synchronisation or a shortage releases of the garbage") {
  const bool synchronises = GENERATE(true, false);
  const GarbageRules never{GarbageRules::When::at_synchronise, 0, 1};
  auto p = std::make_unique<Pool>(20 * kMiB, ChunkSizes{}, never);
  p->shared.idle = rule(800);
  p->init();
  const uint64_t a = p->allocate(5 * kMiB);
  p->free(a);
  CHECK_FALSE(pass(*p, 2000));  // nothing to see to: whoever tended it leaves
  CHECK(p->source.held() == 5 * kMiB);
  p->source.asked_to_attend = 0;
  p->source.passed_mark = 0;
  if (synchronises) {
    p->synchronise();
  } else {
    p->source.fail_release = kNotNow;
    p->allocate(20 * kMiB);
    p->source.fail_release = 0;
  }
  CHECK(p->source.asked_to_attend != 0);
  p->source.passed_mark = ~Mark{0};
  pass(*p, 2000);
  CHECK(p->source.held() == 0);
}

}  // namespace idle_release_test
