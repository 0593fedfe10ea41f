// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/cap.h"

#include <memory>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace shared_pages_test {

using cistern::alloc::Cap;
using cistern::alloc::kDriverPage;
using cistern::alloc::SharedPages;

namespace {

constexpr uint64_t kKiB = 1024, kBase = uint64_t{100} * kDriverPage;

// Blocks beside each other on a device whose cap is so many pages.
struct Blocks {
  explicit Blocks(uint64_t most) { cap.set_limit(most * kDriverPage); }

  bool enter(uint64_t offset, uint64_t bytes) {
    const Cap::Weight before = Cap::at_least(bytes);
    if (!cap.charge(before)) return false;
    if (pages->enter(cap, before, kBase + offset, bytes)) return true;
    cap.refund(before);
    return false;
  }
  void leave(uint64_t offset, uint64_t bytes) { pages->leave(cap, kBase + offset, bytes); }
  uint64_t charged() const { return cap.charged() / kDriverPage; }

  Cap cap;
  std::unique_ptr<SharedPages> pages = std::make_unique<SharedPages>();
};

}  // namespace

TEST_CASE("a page is charged with the first block on it and refunded with the last") {
  Blocks blocks(10);
  REQUIRE(blocks.enter(0, 700 * kKiB));
  REQUIRE(blocks.enter(700 * kKiB, 700 * kKiB));
  CHECK(blocks.charged() == 1);
  REQUIRE(blocks.enter(kDriverPage, 512));
  CHECK(blocks.charged() == 2);
  blocks.leave(0, 700 * kKiB);
  CHECK(blocks.charged() == 2);
  REQUIRE(blocks.enter(1400 * kKiB, 512));
  blocks.leave(700 * kKiB, 700 * kKiB);
  CHECK(blocks.charged() == 2);
  blocks.leave(1400 * kKiB, 512);
  CHECK(blocks.charged() == 1);
  blocks.leave(kDriverPage, 512);
  CHECK(blocks.charged() == 0);
}

TEST_CASE("a block over several pages shares the first and the last, if it has parts of them") {
  struct Row {
    uint64_t offset, bytes, charged, beside;
  };
  const uint64_t page = kDriverPage;
  for (const Row& row : {
           Row{0, page, 1, 1},               // covers one
           Row{0, 3 * page, 3, 3},           // covers all
           Row{0, 3 * page - 512, 3, 2},     // a part of the last
           Row{512, 3 * page - 512, 3, 2},   // a part of the first
           Row{512, 3 * page - 1024, 3, 1},  // of both
           Row{512, page, 2, 0},             // of its only two
           Row{512, page - 1024, 1, 0},      // of its only one
       }) {
    CAPTURE(row.offset, row.bytes);
    Blocks blocks(10);
    REQUIRE(blocks.enter(row.offset, row.bytes));
    CHECK(blocks.charged() == row.charged);
    // The same again, as if beside it, is charged for what nobody shares.
    REQUIRE(blocks.enter(row.offset, row.bytes));
    CHECK(blocks.charged() == row.charged + row.beside);
    blocks.leave(row.offset, row.bytes);
    CHECK(blocks.charged() == row.charged);
    blocks.leave(row.offset, row.bytes);
    CHECK(blocks.charged() == 0);
  }
}

TEST_CASE("a full cap has room for a block on pages that are charged, and for no other") {
  Blocks blocks(2);
  REQUIRE(blocks.enter(0, kDriverPage + 512));
  CHECK_FALSE(blocks.enter(5 * kDriverPage, 512));
  CHECK_FALSE(blocks.enter(2 * kDriverPage - 512, 1024));  // its second page is a third one
  CHECK(blocks.charged() == 2);
  REQUIRE(blocks.enter(2 * kDriverPage - 512, 512));
  blocks.leave(0, kDriverPage + 512);
  CHECK(blocks.charged() == 1);
  REQUIRE(blocks.enter(5 * kDriverPage, 512));
}

TEST_CASE("threads that enter and leave shared pages never pass the limit and lose nothing") {
  Blocks blocks(4);
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (uint64_t self = 0; self < 4; ++self) {
    threads.emplace_back([&blocks, &passed, self] {
      const uint64_t bytes = kDriverPage / 8 * (2 + self);
      for (uint64_t i = 0; i < 20'000; ++i) {
        const uint64_t offset = (i * 7 + self) % 12 * (kDriverPage / 2);
        if (!blocks.enter(offset, bytes)) continue;
        passed += blocks.cap.charged() > blocks.cap.limit() ? 1 : 0;
        blocks.leave(offset, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(passed == 0);
  CHECK(blocks.cap.charged() == 0);
  REQUIRE(blocks.enter(0, 4 * kDriverPage));
}

}  // namespace shared_pages_test
