// SPDX-License-Identifier: Apache-2.0
// What the default strategy's bookkeeping takes of the host: the pages that become resident while
// blocks of one size are allocated, from a source that takes none itself. Records, tables, chunks
// and pages that are used only in part count; the index of addresses does not, which has 16 bytes
// for every 2 MiB of device memory, whatever lies there.
#include <algorithm>
#include <memory>

#include "allocator/on_demand/slab.h"
#include "tests/bench/bench_pool.h"
#include "tests/catch.h"
#include "tests/unit/allocator/resident.h"

namespace bookkeeping_test {

using namespace cistern::alloc;
using cistern::bench::BenchPool;
using namespace cistern::test;

namespace {

constexpr uint64_t kBlocks = 32768;

double bytes_a_block(uint64_t size) {
  BenchPool pool;
  pool.allocate(size);
  const uint64_t before = resident_bytes();
  for (uint64_t i = 0; i < kBlocks; ++i) pool.allocate(size);
  return static_cast<double>(resident_bytes() - before) / kBlocks;
}

}  // namespace

TEST_CASE("the bookkeeping of a block takes at most 64 bytes, whatever its size", "[bookkeeping]") {
  if (!kCountsPages) return;
  constexpr double kIndex = 16, kBegunPages = 5 * 4096.0 / kBlocks;
  // The least a slab takes, a chunk and a record for twelve blocks: 0.03 % of its memory. So the
  // blocks of a slab that has room for eight or fewer take more.
  constexpr double kSlab = sizeof(Chunk) + sizeof(Slab);
  resident_bytes();
  for (uint64_t size = 512; size <= kSlabBytes; size += (size / 16 + 511) / 512 * 512) {
    const bool in_slab = size < kWholeBytes;
    const double in_page = in_slab ? static_cast<double>(kSlabBytes / size) : 1;
    CAPTURE(size, in_page);
    const double bytes = bytes_a_block(size) - kIndex / in_page;
    CHECK(bytes <= std::max(64.0, in_slab ? kSlab / in_page : 0) + kBegunPages);
  }
}

TEST_CASE("what a slab took for its blocks serves the slabs after it", "[bookkeeping]") {
  if (!kCountsPages) return;
  const uint32_t blocks = GENERATE(20u, 300u, 1000u);
  auto arena = std::make_unique<SlabArena>();
  Chunk chunk{};
  chunk.set_range(uint64_t{1} << 40, kSlabBytes);
  uint64_t before = 0;
  for (int round = 0; round < 1000; ++round) {
    if (round == 10) before = resident_bytes();
    Slab* slab = arena->take();
    Block* rest = slab->open(&chunk);
    for (uint32_t i = 1; i < blocks; ++i) rest = slab->split(rest, 1);
    arena->give_back(slab);
  }
  CHECK(resident_bytes() < before + (256 << 10));
}

}  // namespace bookkeeping_test
