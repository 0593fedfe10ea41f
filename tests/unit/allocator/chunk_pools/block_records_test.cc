// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/blocks.h"

#include "tests/catch.h"
#include "tests/unit/allocator/no_more_memory.h"

namespace block_records_test {

using namespace cistern::alloc;
using cistern::test::kMayBeOut;
using cistern::test::NoMoreMemory;

TEST_CASE("where the system has no memory no record is taken, and later one is") {
  if (!kMayBeOut) return;
  BlockPages pages;
  BlockRecords records;
  records.init(&pages);
  bool reserved;
  ChunkBlock* taken;
  {
    const NoMoreMemory now;
    reserved = records.reserve(1);
    taken = records.take();
  }
  CHECK_FALSE(reserved);
  CHECK(taken == nullptr);
  CHECK(records.reserve(1));
  CHECK(records.take() != nullptr);
}

TEST_CASE("records that are there are enough for as many, without another page") {
  if (!kMayBeOut) return;
  BlockPages pages;
  BlockRecords records;
  records.init(&pages);
  REQUIRE(records.reserve(1));
  constexpr size_t kSegment = size_t{1} << 20;  // of pages, at a time
  for (size_t bytes = sizeof(BlockPage); bytes < kSegment; bytes += sizeof(BlockPage)) pages.take();
  bool most, all, more;
  {
    const NoMoreMemory now;
    most = records.reserve(BlockPage::kBlocks - 1);
    all = records.reserve(BlockPage::kBlocks);
    more = records.reserve(BlockPage::kBlocks + 1);
  }
  CHECK(most);
  CHECK(all);
  CHECK_FALSE(more);
}

}  // namespace block_records_test
