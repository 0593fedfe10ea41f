// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/block_records.h"

#include <catch2/catch.hpp>

#include "tests/unit/allocator/no_more_memory.h"

using namespace cistern::alloc;

TEST_CASE("where the system has no memory no record is taken, and later one is") {
  BlockPages pages;
  BlockRecords records;
  records.init(&pages);
  bool reserved;
  ChunkBlock* taken;
  {
    const cistern::test::NoMoreMemory now;
    reserved = records.reserve(1);
    taken = records.take();
  }
  CHECK_FALSE(reserved);
  CHECK(taken == nullptr);
  CHECK(records.reserve(1));
  CHECK(records.take() != nullptr);
}

TEST_CASE("records that are there are enough for as many") {
  BlockPages pages;
  BlockRecords records;
  records.init(&pages);
  REQUIRE(records.reserve(1));
  bool most, all;
  {
    const cistern::test::NoMoreMemory now;
    most = records.reserve(BlockPage::kBlocks - 1);
    all = records.reserve(BlockPage::kBlocks);
  }
  CHECK(most);
  CHECK(all);
}
