// SPDX-License-Identifier: Apache-2.0
#include "allocator/shortage.h"

#include <functional>
#include <memory>
#include <vector>

#include "allocator/base/threads.h"
#include "allocator/context_memory.h"
#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"
#include "tests/unit/test_clock.h"

namespace shortage_test {

using namespace cistern::alloc;
using cistern::test::busy_pool;
using cistern::test::kMiB;
using cistern::test::Pool;

TEST_CASE("what could go back is counted in the driver's pages") {
  auto p = busy_pool();
  const uint64_t a = p->allocate(3 * kMiB + 1), b = p->allocate(1000);
  CHECK(p->pool.returnable_bytes() == 0);
  p->source.may_take_clean = true;
  p->free(a);
  CHECK(p->pool.returnable_bytes() == 4 * kMiB);
  p->free(b);
  p->synchronise();
  CHECK(p->pool.returnable_bytes() == 6 * kMiB);
  const uint64_t before = p->source.held();
  p->pool.release_returnable(1'000'000);
  CHECK(p->pool.returnable_bytes() == 0);
  CHECK(before - p->source.held() == 5 * kMiB + 1);
}

TEST_CASE("what cannot be given without a wait for later work is not told as free") {
  auto p = busy_pool();
  const uint64_t first = p->allocate(4 * kMiB), second = p->allocate(6 * kMiB);
  p->free(first);
  p->synchronise();
  p->free(second);
  CHECK(p->pool.returnable_bytes() == 0);  // the source would wait, and work goes on
  p->source.may_take_clean = true;
  CHECK(p->pool.returnable_bytes() == 10 * kMiB);
  p->free(p->allocate(8 * kMiB));
  p->source.capturing = true;  // no mark can be made
  CHECK(p->pool.before_submission(/*at_once=*/true));
  p->source.capturing = false;
  CHECK(p->pool.returnable_bytes() == 4 * kMiB);
}

TEST_CASE("out of memory: everything idle or waiting goes back before the program is told") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(p->allocate(10 * kMiB));
  for (uint64_t a : blocks) p->free(a);
  CHECK(p->allocate(60 * kMiB) != 0);
  CHECK(p->allocate(10 * kMiB) == 0);
  CHECK(p->code == kOutOfMemory);
  CHECK(p->ledger.out_of_memory.get() == 1);
}

TEST_CASE("a small request gets exactly its size where no slab fits any more") {
  auto p = std::make_unique<Pool>(3 * kMiB);
  REQUIRE(p->allocate(kMiB + 1) != 0);  // two driver pages' worth: 1 MiB is left
  const uint64_t a = p->allocate(600 * 1024);
  CHECK(a != 0);
  CHECK(p->free(a) == Freed::done);
  CHECK(p->source.held() == kMiB + 1);
}

TEST_CASE("out of memory: nothing goes back by a free that would wait for work without end") {
  auto p = busy_pool(64 * kMiB);
  const uint64_t a = p->allocate(50 * kMiB);
  p->free(a);
  CHECK(p->allocate(60 * kMiB) == 0);
  CHECK(p->source.released == 0);
  p->source.passed_mark = ~Mark{0};
  CHECK(p->allocate(60 * kMiB) != 0);
}

TEST_CASE("during a capture, too, clean memory serves where the driver has none") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  const uint64_t kept = p->allocate(1000), freed = p->allocate(62 * kMiB);
  p->free(freed);
  p->synchronise();
  p->source.capturing = true;
  uint64_t large = 0, small = 0;
  CHECK(p->pool.allocate_direct(62 * kMiB, 0, /*pooled=*/true, &large) == kSuccess);
  CHECK(large == freed);
  CHECK(p->pool.allocate_direct(1000, 0, /*pooled=*/true, &small) == kSuccess);
  CHECK(small != kept);
  CHECK(p->pool.allocate_direct(4 * kMiB, 0, /*pooled=*/true, &large) == kOutOfMemory);
}

TEST_CASE("work that cannot be followed ends reuse, and a shortage still returns memory") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  p->shared.reclaim.freeze();
  const uint64_t a = p->allocate(20 * kMiB);
  p->free(a);
  p->synchronise();
  CHECK(p->allocate(20 * kMiB) != a);
  CHECK(p->allocate(40 * kMiB) != 0);
}

TEST_CASE("the cap holds, and idle memory under it is given up first") {
  auto p = std::make_unique<Pool>();
  p->cap.set_limit(20 * kMiB);
  const uint64_t a = p->allocate(12 * kMiB);
  REQUIRE(a != 0);
  CHECK(p->allocate(12 * kMiB) == 0);
  CHECK(p->code == kOutOfMemory);
  p->free(a);
  CHECK(p->allocate(18 * kMiB) != 0);
  CHECK(p->cap.charged() == 18 * kMiB);
}

TEST_CASE("what the source refuses to take back is not lost, and no progress either") {
  auto p = std::make_unique<Pool>();
  p->free(p->allocate(4 * kMiB));
  p->source.capturing = true;
  CHECK_FALSE(p->pool.release_returnable(1'000'000));
  CHECK(p->ledger.lost.get() == 0);
  CHECK(p->pool.returnable_bytes() == 4 * kMiB);
  p->source.capturing = false;
  CHECK(p->pool.release_returnable(1'000'000));
  CHECK(p->source.held() == 0);
}

TEST_CASE("in a shortage what is clean goes back first, without a wait for the device") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  p->source.may_take_clean = true;
  const uint64_t large = p->allocate(20 * kMiB), small = p->allocate(5000);
  const uint64_t waiting = p->allocate(10 * kMiB);
  REQUIRE(p->free(large) == Freed::done);
  REQUIRE(p->free(small) == Freed::done);
  p->synchronise();
  p->source.passed_mark = 0;
  REQUIRE(p->free(waiting) == Freed::done);
  SECTION("and what is not clean stays, if that is enough") {
    CHECK(p->allocate(48 * kMiB) != 0);
    CHECK(p->source.taken_clean == 2);
    CHECK(p->pool.usage().waiting == 10 * kMiB);
  }
  SECTION("and the rest after it, once it is") {
    p->source.pass_after_queries = 10;
    CHECK(p->allocate(60 * kMiB) != 0);
    CHECK(p->source.taken_clean == 3);
  }
  SECTION("where the source cannot do that, only once no work goes on") {
    p->source.may_take_clean = false;
    CHECK(p->allocate(48 * kMiB) == 0);
    p->source.passed_mark = ~Mark{0};
    CHECK(p->allocate(48 * kMiB) != 0);
    CHECK(p->pool.usage().idle == 0);
  }
}

TEST_CASE("a request refused while work goes on without end is the last to wait for that work") {
  auto p = busy_pool(64 * kMiB);
  p->free(p->allocate(50 * kMiB));
  CHECK(p->allocate(60 * kMiB) == 0);
  const uint64_t marks = p->shared.reclaim.marks_made();
  for (int i = 0; i < 20; ++i) CHECK(p->allocate(60 * kMiB) == 0);
  CHECK(p->shared.reclaim.marks_made() == marks);
  p->source.passed_mark = ~Mark{0};
  CHECK(p->allocate(60 * kMiB) != 0);
}

// The driver's free does not wait for what another thread launches meanwhile: work that is asked
// for a second time in one free may have become such a wait.
TEST_CASE("a free beside a thread that is short of memory asks once for work, and waits for none") {
  auto p = busy_pool();
  const uint64_t waiting = p->allocate(4 * kMiB), freed = p->allocate(6 * kMiB);
  p->free(waiting);
  const CountedIn short_of_memory(p->shared.threads_short_of_memory);
  const CountedIn extra_work(p->shared.free_extra_work);
  const uint64_t asked = p->shared.reclaim.queries_made();
  p->free(freed);
  CHECK(p->shared.reclaim.queries_made() - asked == 1);
  CHECK(p->source.released == 0);

  SECTION("what the one question finds done goes to the source") {
    p->source.passed_mark = ~Mark{0};
    p->free(p->allocate(1000));
    CHECK(p->source.released >= 2);
  }
  SECTION("also if later work goes on") {
    const uint64_t small = p->allocate(1000);
    p->source.may_take_clean = true;
    p->source.passed_mark = p->source.last_mark;
    p->free(small);
    CHECK(p->source.released == 2);
  }
  SECTION("nor for what the source took clean and gives late") {
    p->source.may_take_clean = true;
    p->source.gives_late = true;
    const uint64_t in_a_slab[] = {p->allocate(1000), p->allocate(1000), p->allocate(1000)};
    const Ticket after = p->synchronise();
    p->pool.release_clean();
    const uint64_t before = p->shared.reclaim.queries_made();
    p->free(in_a_slab[0], after);  // clean, and nothing goes
    CHECK(p->shared.reclaim.queries_made() == before);
    p->source.passed_mark = ~Mark{0};
    p->free(in_a_slab[1]);
    CHECK(p->source.unsettled());
  }
}

TEST_CASE("a wait in vain of several threads at once counts once") {
  const cistern::test::StoppedClock clock;
  auto p = busy_pool();
  auto memory = std::make_unique<ContextMemory>();
  memory->init(&p->shared, &p->source, {&p->ledger, &p->cap, nullptr, FillMode::off}, 0, {}, {});
  for (int i = 0; i < 50; ++i) memory->note_stuck(100'000'000);
  CHECK(memory->patience(10'000'000'000) < 9'900'000'001);
  clock.move_ns(300'000'000);  // the program does something else meanwhile
  CHECK(memory->patience(10'000'000'000) > 9'700'000'000);
  p->synchronise();  // work ended: the next to be waited for is other work
  CHECK(memory->patience(10'000'000'000) == 10'000'000'000);
}

TEST_CASE("what was returned clean and comes late is waited for before memory is said to be out") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  p->source.may_take_clean = p->source.gives_late = true;
  p->free(p->allocate(50 * kMiB));
  p->synchronise();
  SECTION("as long as the work that goes on ends") { CHECK(p->allocate(60 * kMiB) != 0); }
  SECTION("but not for work without end") {
    p->source.passed_mark = 0;
    CHECK(p->allocate(60 * kMiB) == 0);
  }
}

TEST_CASE("a request that nothing can serve is refused at once") {
  auto p = std::make_unique<Pool>(10 * kMiB);
  CHECK(p->allocate(60 * kMiB) == 0);
  CHECK(p->code == kOutOfMemory);
  CHECK(p->source.obtained <= 4);
}

TEST_CASE("work that can no longer be followed, once it was waited for, keeps no memory") {
  auto p = busy_pool();
  p->free(p->allocate(4 * kMiB));
  int asked = 0;
  std::function<void()> ask = [&] {
    if (++asked == 1) {
      p->source.on_refuses_release = ask;
    } else {
      p->shared.reclaim.freeze();
    }
  };
  p->source.on_refuses_release = ask;
  CHECK(p->pool.release_returnable(1'000'000));
  CHECK(asked == 2);
  CHECK(p->source.held() == 0);
}

}  // namespace shortage_test
