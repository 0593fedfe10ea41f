// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/blocks.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace block_table_test {

using namespace cistern::alloc;

namespace {

// Blocks of one granule each at the places `stride` apart.
struct Blocks {
  Blocks(size_t count, uint32_t stride) : records(count) {
    map.base = uint64_t{0x7f} << 40;
    for (size_t i = 0; i < count; ++i) {
      records[i].start = static_cast<uint32_t>(i) * stride;
      records[i].set_map(&map);
    }
  }
  ChunkMap map{};
  std::vector<ChunkBlock> records;
};

}  // namespace

TEST_CASE("a table finds every block while it grows, and no other place") {
  const uint32_t stride = GENERATE(1u, 2u, 4096u, 12345u);
  CAPTURE(stride);
  Blocks blocks(20000, stride);
  auto table = std::make_unique<BlockTable>();
  for (ChunkBlock& block : blocks.records) {
    table->insert(&block);
    REQUIRE(table->find(&blocks.map, block.start) == &block);
  }
  for (ChunkBlock& block : blocks.records) {
    REQUIRE(table->find(&blocks.map, block.start) == &block);
    if (stride > 1) REQUIRE(table->find(&blocks.map, block.start + 1) == nullptr);
  }
  const ChunkMap other{};
  CHECK(table->find(&other, 0) == nullptr);
}

TEST_CASE("an erased block is gone and the others are not, in random order") {
  Blocks blocks(5000, 8);
  auto table = std::make_unique<BlockTable>();
  for (ChunkBlock& block : blocks.records) table->insert(&block);
  std::vector<ChunkBlock*> order;
  for (ChunkBlock& block : blocks.records) order.push_back(&block);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  for (size_t i = 0; i < order.size(); ++i) {
    REQUIRE(table->find_first(&blocks.map, order[i]->start) == order[i]);
    table->erase(order[i]);
    REQUIRE(table->find(&blocks.map, order[i]->start) == nullptr);
    if (i + 1 < order.size()) {
      REQUIRE(table->find(&blocks.map, order.back()->start) == order.back());
    }
  }
  CHECK(table->count() == 0);
}

TEST_CASE("a cleared table is empty and can be filled again") {
  Blocks blocks(3000, 8);
  auto table = std::make_unique<BlockTable>();
  for (int round = 0; round < 2; ++round) {
    for (ChunkBlock& block : blocks.records) table->insert(&block);
    CHECK(table->count() == 3000);
    table->clear();
    CHECK(table->count() == 0);
    for (const ChunkBlock& block : blocks.records) {
      REQUIRE(table->find(&blocks.map, block.start) == nullptr);
    }
  }
}

TEST_CASE("a block shares its bucket with one other at most, on average, whatever the spacing") {
  const uint32_t stride = GENERATE(1u, 2u, 8u, 9u, 100u, 4096u);
  CAPTURE(stride);
  Blocks blocks(100000, stride);
  auto table = std::make_unique<BlockTable>();
  for (ChunkBlock& block : blocks.records) table->insert(&block);
  size_t chained = 0;
  for (const ChunkBlock& block : blocks.records) {
    for (const ChunkBlock* b = block.same_bucket; b != nullptr; b = b->same_bucket) ++chained;
  }
  CHECK(chained < blocks.records.size());
}

}  // namespace block_table_test
