// SPDX-License-Identifier: Apache-2.0
#include "shim/order/barrier/work.h"

#include "tests/catch.h"

namespace cistern::shim {
namespace {

using alloc::Ticket;
using By = SeenEmpty::By;

constexpr Ticket kNow = alloc::Reclaim::kNow;

TEST_CASE("a context is empty once a synchronisation is over") {
  SeenEmpty context{};
  Ticket latest = kNow;
  REQUIRE(!context.now(&latest));
  context.expect(5);
  REQUIRE(!context.now(&latest));
  context.confirm(5, By::kSynchronisation);
  REQUIRE(context.now(&latest));
  REQUIRE(latest == 5);
}

TEST_CASE("a free of the driver's own has no ticket") {
  SeenEmpty context{};
  Ticket latest = 1;
  context.expect(5);
  context.confirm(5, By::kDriverFree);
  REQUIRE(context.now(&latest));
  REQUIRE(latest == kNow);
}

TEST_CASE("what is submitted during a synchronisation is not done after it") {
  SeenEmpty context{};
  Ticket latest;
  context.expect(0);
  context.end();
  context.confirm(0, By::kSynchronisation);
  REQUIRE(!context.now(&latest));
}

TEST_CASE("of two synchronisations the one that began later counts") {
  SeenEmpty context{};
  Ticket latest;
  context.expect(5);
  context.expect(6);
  context.confirm(5, By::kSynchronisation);
  REQUIRE(!context.now(&latest));
  context.confirm(6, By::kSynchronisation);
  REQUIRE(context.now(&latest));
  REQUIRE(latest == 6);
}

TEST_CASE("a context that is empty stays so while it is synchronised again") {
  SeenEmpty context{};
  Ticket latest;
  context.expect(5);
  context.confirm(5, By::kSynchronisation);
  context.expect(6);
  REQUIRE(context.now(&latest));
  context.confirm(6, By::kSynchronisation);
  REQUIRE(latest == 5);
}

TEST_CASE("each expectation has a number of its own") {
  SeenEmpty context{};
  contexts_seen_empty.store(0);
  context.expect(5);
  const uint64_t first = contexts_seen_empty.load();
  REQUIRE(first != 0);
  context.end();
  context.expect(6);
  REQUIRE(contexts_seen_empty.load() != 0);
  REQUIRE(contexts_seen_empty.load() != first);
}

}  // namespace
}  // namespace cistern::shim
