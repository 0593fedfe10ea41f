// SPDX-License-Identifier: Apache-2.0
// Large requests with a chunk of their own, and the bound on what stays idle.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "allocator/host/host_pool.h"
#include "tests/catch.h"

namespace host_pool_own_test {

using namespace cistern::alloc::host;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::unique_ptr<HostPool> modest_pool(uint64_t most_idle = UINT64_MAX) {
  auto pool = std::make_unique<HostPool>();
  pool->init({.chunk_bytes = 64 * kMiB,
              .own_bytes = 8 * kMiB,
              .most_idle = most_idle,
              .locks = false,
              .eager = false,
              .most_locked = UINT64_MAX,
              .lock_refused = nullptr});
  return pool;
}

char* take(HostPool& pool, uint64_t bytes) {
  bool zero = false;
  return static_cast<char*>(pool.take(bytes, kPage, &zero));
}

uint64_t resident(const char* start, uint64_t bytes) {
  std::vector<unsigned char> pages(bytes / kPage);
  if (mincore(const_cast<char*>(start), bytes, pages.data()) != 0) return UINT64_MAX;
  return static_cast<uint64_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

bool mapped(const char* page) {
  unsigned char in_memory;
  return mincore(const_cast<char*>(page), kPage, &in_memory) == 0;
}

}  // namespace

TEST_CASE("a large host request has a mapping of its own, which goes when it comes back") {
  const auto pool = modest_pool();
  char* small = take(*pool, 4 * kMiB);
  char* large = take(*pool, 8 * kMiB);
  CHECK_FALSE(pool->same_chunk(small, large));
  CHECK(pool->usage().chunks == 2);
  CHECK(pool->give_back(large, 8 * kMiB));
  CHECK(pool->usage().chunks == 1);
  CHECK_FALSE(mapped(large));
}

TEST_CASE("what is idle beyond the bound goes back to the system with the free") {
  const auto pool = modest_pool(/*most_idle=*/8 * kMiB);
  std::vector<char*> blocks(20);
  for (char*& block : blocks) {
    block = take(*pool, kMiB);
    std::memset(block, 1, kMiB);
  }
  for (size_t i = 0; i < 8; ++i) CHECK(pool->give_back(blocks[2 * i], kMiB));
  CHECK(pool->usage().idle == 8 * kMiB);
  CHECK(pool->usage().released == 0);
  CHECK(pool->give_back(blocks[16], kMiB));
  CHECK(pool->usage().idle == 7 * kMiB);
  CHECK(pool->usage().released == 2 * kMiB);
  // The oldest went, the newest did not; and it is zero again.
  CHECK(resident(blocks[0], kMiB) == 0);
  CHECK(resident(blocks[2], kMiB) == 0);
  CHECK(resident(blocks[16], kMiB) == kMiB / kPage);
  CHECK(blocks[0][5] == 0);
}

TEST_CASE("what the caller of a host pool keeps counts as idle") {
  const auto pool = modest_pool(/*most_idle=*/8 * kMiB);
  std::vector<char*> blocks(20);
  for (char*& block : blocks) block = take(*pool, kMiB);
  for (size_t i = 0; i < 6; ++i) pool->give_back(blocks[2 * i], kMiB);
  pool->count_as_idle(2 * kMiB);
  pool->release_too_much();
  CHECK(pool->usage().released == 0);
  pool->count_as_idle(5 * kMiB);
  pool->release_too_much();
  CHECK(pool->usage().idle == 3 * kMiB);
  CHECK_FALSE(pool->was_full());  // nothing came back to it
  pool->give_back(blocks[12], kMiB);
  CHECK(pool->was_full());
  CHECK_FALSE(pool->was_full());
  // More than may be idle at all.
  pool->count_as_idle(9 * kMiB);
  pool->release_too_much();
  CHECK(pool->usage().idle == 0);
  pool->count_as_idle(0);
  for (size_t i = 0; i < 3; ++i) pool->give_back(blocks[14 + 2 * i], kMiB);
  CHECK(pool->usage().idle == 3 * kMiB);
  CHECK_FALSE(pool->was_full());
}

TEST_CASE("pages that were never touched do not count as idle beside a few that were") {
  const auto pool = modest_pool();
  char* first = take(*pool, 4 * kMiB);
  char* rest = take(*pool, 2 * kMiB);
  pool->give_back(first, 4 * kMiB);
  CHECK_FALSE(pool->release_idle(0));
  char* touched = take(*pool, kPage);
  REQUIRE(touched == first);
  *touched = 1;
  pool->give_back(touched, kPage);
  CHECK(pool->usage().idle == kPage);
  // Of a request that takes other pages, all are zero.
  bool zero = true;
  char* again = static_cast<char*>(pool->take(4 * kMiB, kPage, &zero));
  CHECK(again == first);
  CHECK(zero);
  CHECK(again[0] == 0);
  pool->give_back(again, 4 * kMiB);
  pool->give_back(rest, 2 * kMiB);
}

TEST_CASE("a large host block grows by moving its pages") {
  const auto pool = modest_pool();
  char* old = take(*pool, 16 * kMiB);
  std::memset(old, 7, 16 * kMiB);
  char* grown = take(*pool, 24 * kMiB);
  REQUIRE(pool->move(old, grown, 16 * kMiB));
  CHECK(resident(grown, 16 * kMiB) == 16 * kMiB / kPage);
  CHECK(grown[0] == 7);
  CHECK(grown[16 * kMiB - 1] == 7);
  CHECK(grown[16 * kMiB] == 0);
  grown[24 * kMiB - 1] = 1;
  // It reads as zero until it comes back: malloc may give it to another thread before.
  CHECK(mapped(old));
  CHECK(resident(old, 16 * kMiB) == 0);
  CHECK(old[16 * kMiB - 1] == 0);
  CHECK(pool->give_back(old, 16 * kMiB));
  CHECK_FALSE(mapped(old));
  CHECK(pool->give_back(grown, 24 * kMiB));
  CHECK(pool->usage().live == 0);
  CHECK(pool->usage().chunks == 0);
}

TEST_CASE("a block that is several mappings grows by a copy, which gives back as it goes") {
  const auto pool = modest_pool();
  char* old = take(*pool, 16 * kMiB);
  std::memset(old, 7, 16 * kMiB);
  REQUIRE(mprotect(old + 4 * kMiB, kPage, PROT_READ) == 0);
  char* grown = take(*pool, 24 * kMiB);
  REQUIRE(pool->move(old, grown, 16 * kMiB));
  CHECK(grown[4 * kMiB] == 7);
  CHECK(grown[16 * kMiB - 1] == 7);
  CHECK(resident(old, 16 * kMiB) == 0);
  pool->give_back(old, 16 * kMiB);
  pool->give_back(grown, 24 * kMiB);
}

TEST_CASE("smaller blocks are moved by a copy") {
  const auto pool = modest_pool();
  char* old = take(*pool, 2 * kMiB);
  std::memset(old, 7, 2 * kMiB);
  char* grown = take(*pool, 16 * kMiB);
  REQUIRE(pool->move(old, grown, 2 * kMiB));
  CHECK(grown[2 * kMiB - 1] == 7);
  CHECK(mapped(old));
}

TEST_CASE("of a block that is there in part nothing else gets the addresses behind it") {
  const auto pool = modest_pool();
  char* block = static_cast<char*>(pool->take_backed(64 * kMiB, 40 * kMiB));
  REQUIRE(block != nullptr);
  CHECK(pool->backed_from(block) == 40 * kMiB);
  CHECK(pool->backed_from(block + kMiB) == 39 * kMiB);
  CHECK_FALSE(pool->note_split(block));
  block[40 * kMiB - 1] = 1;
  CHECK_FALSE(mapped(block + 40 * kMiB));
  std::vector<char*> others(20);
  for (char*& other : others) {
    other = take(*pool, 16 * kMiB);
    CHECK((other + 16 * kMiB <= block || other >= block + 64 * kMiB));
    CHECK(pool->backed_from(other) == UINT64_MAX);
  }
  CHECK(pool->usage().committed == 40 * kMiB + 20 * 16 * kMiB);
  CHECK(pool->give_back(block, 64 * kMiB));
  CHECK_FALSE(mapped(block));
  for (char* other : others) pool->give_back(other, 16 * kMiB);
  CHECK(pool->usage().chunks == 0);
}

TEST_CASE("chunks in which nothing is in use go where a request finds no room otherwise") {
  const auto pool = modest_pool();
  std::vector<char*> blocks(24);
  for (char*& block : blocks) block = take(*pool, 4 * kMiB);  // two chunks of 64 MiB
  REQUIRE(pool->usage().chunks == 2);
  for (char* block : blocks) pool->give_back(block, 4 * kMiB);
  // The first is not in use for new requests any more, and is given back for this one.
  rlimit before;
  getrlimit(RLIMIT_AS, &before);
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  const rlimit tight{pages * kPage + 48 * kMiB, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
  char* large = take(*pool, 64 * kMiB);
  setrlimit(RLIMIT_AS, &before);
  REQUIRE(large != nullptr);
  CHECK(pool->usage().chunks == 2);
  pool->give_back(large, 64 * kMiB);
}

}  // namespace host_pool_own_test
