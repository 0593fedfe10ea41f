// SPDX-License-Identifier: Apache-2.0
// FLAGS_eager_delete_scope=false: what a free need not do itself.
#include <memory>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace put_off_test {

using namespace cistern::alloc;
using cistern::test::kMiB;
using cistern::test::Pool;
using cistern::test::virtual_ms;

namespace {

std::unique_ptr<Pool> lazy_pool(bool defer = true) {
  auto p = std::make_unique<Pool>();
  cistern::config::Policy policy = cistern::config::default_policy();
  policy.eager_delete_scope = {!defer, true};
  p->set_idle_release(policy);
  p->init();
  return p;
}

// More than may stay idle, all of it clean by the last free, and not in use for a second.
void free_much(Pool& p) {
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(p.allocate(4 * kMiB));
  const uint64_t last = p.allocate(4 * kMiB), very_last = p.allocate(4 * kMiB);
  for (const uint64_t a : blocks) p.free(a);
  p.synchronise();
  virtual_ms += 200;
  p.free(last);
  virtual_ms += 1001;
  p.free(very_last);
}

uint64_t caught_up(const Pool& p, WorkedBy worked_by) {
  return p.ledger.deferred_done[static_cast<int>(worked_by)].get();
}

}  // namespace

TEST_CASE("the work of a free is done in it, or put off") {
  const bool defer = GENERATE(false, true);
  auto p = lazy_pool(defer);
  free_much(*p);
  CHECK((p->source.released == 0) == defer);
  CHECK((p->pool.usage().idle == 0) == defer);
  CHECK((p->source.last_mark == 0) == defer);
  CHECK(p->source.rung == (defer ? 1 : 0));
}

TEST_CASE("put-off work is done by whoever tends the pool") {
  auto p = lazy_pool();
  free_much(*p);
  p->source.may_take_clean = true;
  while (p->pool.work_in_background()) virtual_ms += 100;
  CHECK(p->pool.usage().idle == 64 * kMiB);
  CHECK(p->pool.usage().waiting == 0);
  CHECK(caught_up(*p, WorkedBy::background) == 1);
  p->pool.work_in_background();
  CHECK(caught_up(*p, WorkedBy::background) == 1);
}

TEST_CASE("put-off work is done first by an allocation that misses") {
  auto p = lazy_pool();
  p->source.may_take_clean = true;
  free_much(*p);
  REQUIRE(p->allocate(200 * kMiB) != 0);
  CHECK(caught_up(*p, WorkedBy::call) == 1);
  CHECK(p->source.taken_clean > 20);
  CHECK(p->pool.usage().idle <= 72 * kMiB);
}

TEST_CASE("an allocation that misses does not wait for the device to return memory") {
  auto p = lazy_pool();
  free_much(*p);
  REQUIRE(p->allocate(200 * kMiB) != 0);
  CHECK(p->source.released == 0);
  CHECK(p->pool.usage().idle >= 160 * kMiB);
}

TEST_CASE("an allocation served at once leaves put-off work alone") {
  auto p = lazy_pool();
  free_much(*p);
  REQUIRE(p->allocate(4 * kMiB) != 0);
  CHECK(caught_up(*p, WorkedBy::call) == 0);
}

TEST_CASE("where nobody tends the pool, frees do their work themselves") {
  auto p = lazy_pool();
  p->source.attends = false;
  free_much(*p);
  CHECK(p->source.released > 20);
  CHECK(caught_up(*p, WorkedBy::call) > 0);
}

}  // namespace put_off_test
