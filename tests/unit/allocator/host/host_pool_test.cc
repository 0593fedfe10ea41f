// SPDX-License-Identifier: Apache-2.0
#include "allocator/host/host_pool.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/no_more_memory.h"
#include "tests/unit/test_clock.h"

namespace host_pool_test {

using namespace cistern::alloc::host;
using cistern::test::kMayBeOut;
using cistern::test::NoMoreMemory;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Pool {
  explicit Pool(HostPolicy policy = {.chunk_bytes = 64 * kMiB,
                                     .locks = false,
                                     .eager = false,
                                     .most_locked = UINT64_MAX,
                                     .lock_refused = nullptr}) {
    pool->init(policy);
  }
  HostPool* operator->() { return pool.get(); }

  char* take(uint64_t bytes, uint64_t alignment = kPage, bool want_zero = false) {
    zero = want_zero;
    return static_cast<char*>(pool->take(bytes, alignment, &zero));
  }

  std::unique_ptr<HostPool> pool = std::make_unique<HostPool>();
  bool zero = false;
};

// How many pages of a range are in memory.
uint64_t resident(const char* start, uint64_t bytes) {
  std::vector<unsigned char> pages(bytes / kPage);
  if (mincore(const_cast<char*>(start), bytes, pages.data()) != 0) return UINT64_MAX;
  return static_cast<uint64_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

bool is_zero(const char* start, uint64_t bytes) {
  return std::all_of(start, start + bytes, [](char byte) { return byte == 0; });
}

}  // namespace

TEST_CASE("host extents come from one chunk, whose pages are taken as they are touched") {
  Pool pool;
  char* first = pool.take(kMiB);
  char* second = pool.take(3 * kPage);
  REQUIRE(first != nullptr);
  CHECK(pool.zero);
  CHECK(pool->same_chunk(first, second));
  CHECK(resident(first, kMiB) == 0);
  const HostUsage usage = pool->usage();
  CHECK(usage.chunks == 1);
  CHECK(usage.reserved == 64 * kMiB);
  CHECK(usage.live == kMiB + 3 * kPage);
  CHECK(usage.committed < 64 * kMiB);
  CHECK(usage.locked == 0);
}

TEST_CASE("what limits the chunks is asked when the first is needed, and once") {
  static int asked;
  asked = 0;
  Pool pool({.chunk_bytes = 64 * kMiB,
             .most_chunk_bytes =
                 [] {
                   ++asked;
                   return 16 * kMiB;
                 },
             .locks = false,
             .eager = false,
             .most_locked = UINT64_MAX,
             .lock_refused = nullptr});
  CHECK(asked == 0);
  pool.take(kPage);
  CHECK(pool->usage().reserved == 16 * kMiB);
  pool.take(10 * kMiB);
  pool.take(10 * kMiB);
  CHECK(pool->usage().reserved == 32 * kMiB);
  CHECK(asked == 1);
}

TEST_CASE("freed host extents join and serve again, the lowest waste first") {
  Pool pool;
  char* parts[3];
  for (char*& part : parts) part = pool.take(8 * kPage);
  char* guard = pool.take(kPage);
  for (const int i : {0, 2, 1}) CHECK(pool->give_back(parts[i], 8 * kPage));
  CHECK(pool->usage().idle == 24 * kPage);
  char* all = pool.take(24 * kPage);
  CHECK(all == parts[0]);
  CHECK_FALSE(pool.zero);
  REQUIRE(pool->note_split());
  CHECK(pool->give_back(all + 8 * kPage, 8 * kPage));  // a part of it
  CHECK(pool.take(8 * kPage) == all + 8 * kPage);
  CHECK(pool->give_back(guard, kPage));
}

TEST_CASE("a host extent that has to be zero is, whatever was in it") {
  Pool pool;
  const uint64_t bytes = GENERATE(as<uint64_t>{}, kPage, 256 * kPage);
  char* dirty = pool.take(bytes);
  std::memset(dirty, 0x5a, bytes);
  pool->give_back(dirty, bytes);
  char* again = pool.take(bytes, kPage, /*want_zero=*/true);
  CHECK(again == dirty);
  CHECK(pool.zero);
  CHECK(is_zero(again, bytes));
}

TEST_CASE("host extents lie where they are asked to") {
  Pool pool;
  pool.take(kPage);
  for (uint64_t alignment = kPage; alignment <= 8 * kMiB; alignment *= 2) {
    char* extent = pool.take(5 * kPage, alignment);
    REQUIRE(extent != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(extent) % alignment == 0);
  }
  CHECK(pool->usage().live == 61 * kPage);
  CHECK(pool->usage().chunks == 1);  // the room before each of them is not lost
}

TEST_CASE("another chunk follows a full one, and a large request has its own, which ends with it") {
  Pool pool;
  char* extents[9];
  for (char*& extent : extents) extent = pool.take(8 * kMiB);
  CHECK(pool->usage().chunks == 2);
  CHECK_FALSE(pool->same_chunk(extents[0], extents[8]));
  char* large = pool.take(100 * kMiB);
  CHECK(pool->usage().chunks == 3);
  CHECK(pool->usage().reserved == 228 * kMiB);
  REQUIRE(pool->note_split());
  pool->give_back(large, 60 * kMiB);
  CHECK(pool->usage().chunks == 3);
  pool->give_back(large + 60 * kMiB, 40 * kMiB);
  CHECK(pool->usage().chunks == 2);
  CHECK(pool->usage().reserved == 128 * kMiB);
  CHECK(resident(large, kPage) == UINT64_MAX);  // not mapped
}

TEST_CASE("the host chunk of a large request stays while any part of it is in use") {
  Pool pool;
  char* large = pool.take(100 * kMiB);
  REQUIRE(pool->note_split());
  pool->give_back(large + 60 * kMiB, 40 * kMiB);
  char* again = pool.take(20 * kMiB);
  CHECK(again == large + 60 * kMiB);
  pool->give_back(again, 20 * kMiB);
  CHECK(pool->usage().chunks == 1);
  pool->give_back(large, 60 * kMiB);
  CHECK(pool->usage().chunks == 0);
}

TEST_CASE("an aligned request is served from free pages that it fits into") {
  Pool pool;
  pool.take(kPage);
  char* as_large = pool.take(kMiB);
  pool.take(kPage);
  char* larger = pool.take(3 * kMiB);
  pool.take(kPage);
  REQUIRE(reinterpret_cast<uintptr_t>(as_large) % kMiB != 0);
  pool->give_back(as_large, kMiB);
  pool->give_back(larger, 3 * kMiB);
  char* aligned = pool.take(kMiB, kMiB);
  CHECK(aligned >= larger);
  CHECK(aligned <= larger + 2 * kMiB);
}

TEST_CASE("an address that is not the pool's is not taken back") {
  Pool pool;
  char other[16];
  CHECK_FALSE(pool->give_back(other, kPage));
  pool.take(kPage);
  CHECK_FALSE(pool->give_back(other, kPage));
  // Of the kernel's half of the addresses.
  CHECK_FALSE(pool->give_back(reinterpret_cast<void*>(uintptr_t{0xffff} << 48), kPage));
  CHECK(pool->usage().live == kPage);
}

TEST_CASE("idle pages go back to the system once they are old, and only those") {
  Pool pool;
  char* kept = pool.take(4 * kMiB);
  char* freed = pool.take(4 * kMiB);
  std::memset(kept, 1, 4 * kMiB);
  std::memset(freed, 1, 4 * kMiB);
  pool->give_back(freed, 4 * kMiB);
  CHECK(pool->release_idle(uint64_t{3600} * 1'000'000'000));
  CHECK(pool->usage().idle == 4 * kMiB);
  CHECK(resident(freed, 4 * kMiB) == 1024);
  CHECK_FALSE(pool->release_idle(0));
  CHECK(resident(freed, 4 * kMiB) == 0);
  CHECK(resident(kept, 4 * kMiB) == 1024);
  CHECK(kept[kMiB] == 1);
  CHECK(pool.take(4 * kMiB) == freed);
  CHECK(pool.zero);
}

TEST_CASE("a little that was just freed keeps no old neighbour") {
  const cistern::test::StoppedClock clock;
  Pool pool;
  char* large = pool.take(4 * kMiB);
  char* small = pool.take(kPage);
  pool.take(kPage);
  std::memset(large, 1, 4 * kMiB);
  pool->give_back(large, 4 * kMiB);
  clock.move_ns(20'000'000);
  pool->give_back(small, kPage);
  CHECK_FALSE(pool->release_idle(10'000'000));
  CHECK(resident(large, 4 * kMiB) == 0);
}

TEST_CASE("host chunks are locked as far as they may be touched, and no further than allowed") {
  rlimit limit;
  getrlimit(RLIMIT_MEMLOCK, &limit);
  static uint64_t told_locked, told_wanted;
  static int told;
  told = 0;
  const uint64_t most = 2 * kMiB;
  Pool pool({.chunk_bytes = 64 * kMiB,
             .locks = true,
             .eager = false,
             .most_locked = most,
             .lock_refused = [](uint64_t locked, uint64_t wanted) {
               told_locked = locked;
               told_wanted = wanted;
               ++told;
             }});
  char* extent = pool.take(8 * kMiB);
  REQUIRE(extent != nullptr);
  CHECK(resident(extent, 8 * kMiB) == 0);  // on fault
  for (int i = 0; i < 6; ++i) pool.take(8 * kMiB);
  const HostUsage usage = pool->usage();
  CHECK(usage.locked == most);
  CHECK(usage.locked + usage.refused == usage.committed);
  CHECK(told == 1);
  CHECK(told_locked == most);
  CHECK(told_wanted > most);
  uint64_t inside = 0, outside = 0;
  pool->for_each_locked(
      reinterpret_cast<uintptr_t>(extent) - kPage, 4 * kMiB,
      [&](uintptr_t, uint64_t bytes) { inside += bytes; },
      [&](uintptr_t, uint64_t bytes) { outside += bytes; });
  CHECK(inside == most);
  CHECK(outside == 2 * kMiB);
  // Locked pages go back to the system, too.
  std::memset(extent, 1, 8 * kMiB);
  pool->give_back(extent, 8 * kMiB);
  CHECK_FALSE(pool->release_idle(0));
  CHECK(resident(extent, 8 * kMiB) == 0);
  CHECK(pool->usage().locked == most);
}

TEST_CASE("a forked child uses the pool, with nothing locked") {
  Pool pool({.chunk_bytes = 16 * kMiB,
             .locks = true,
             .eager = false,
             .most_locked = kMiB,
             .lock_refused = nullptr});
  pool.take(kPage);
  pool->lock();
  const pid_t child = fork();
  if (child == 0) {
    pool->unlock_in_child();
    const bool served = pool.take(kMiB) != nullptr && pool->usage().locked == 0;
    _exit(served ? 0 : 1);
  }
  pool->unlock();
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("once locking is refused after the program unlocked all, nothing more is locked") {
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;  // whoever has privileges is refused nothing
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) _exit(0);
    rlimit limit;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    const rlimit before = limit;
    Pool pool({.chunk_bytes = kMiB,
               .locks = true,
               .eager = false,
               .most_locked = UINT64_MAX,
               .lock_refused = nullptr});
    pool.take(kMiB);
    if (pool->usage().locked != kMiB) _exit(0);  // not allowed
    munlockall();
    limit.rlim_cur = 0;
    setrlimit(RLIMIT_MEMLOCK, &limit);
    pool->lock_again();
    if (pool->usage().locked != 0) _exit(1);
    setrlimit(RLIMIT_MEMLOCK, &before);
    for (int i = 0; i < 4; ++i) pool.take(kMiB);  // the system would allow it now
    if (pool->usage().locked != 0) _exit(2);
    _exit(pool->usage().refused == pool->usage().committed ? 0 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("where address space is short, host chunks are smaller, and at last a request fails") {
  const pid_t child = fork();
  if (child == 0) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const uint64_t bytes = pages * kPage + 200 * kMiB;
    const rlimit tight = {bytes, bytes};
    setrlimit(RLIMIT_AS, &tight);
    Pool pool({.chunk_bytes = 1024 * kMiB,
               .locks = false,
               .eager = false,
               .most_locked = 0,
               .lock_refused = nullptr});
    char* some = pool.take(kMiB);
    if (some == nullptr) _exit(1);
    some[0] = 1;
    if (pool.take(400 * kMiB) != nullptr) _exit(2);
    if (pool->usage().failed != 1) _exit(3);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("no host chunk stays of which nothing may be used") {
  const pid_t child = fork();
  if (child == 0) {
    Pool pool;
    pool.take(kPage);
    const rlimit little = {kPage, kPage};
    setrlimit(RLIMIT_DATA, &little);
    for (int i = 0; i < 20; ++i) {
      if (pool.take(100 * kMiB) != nullptr) _exit(1);
    }
    _exit(pool->usage().chunks == 1 ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("there may be many small host chunks", "[one-thread]") {
  Pool pool({.chunk_bytes = kMiB,
             .locks = false,
             .eager = false,
             .most_locked = 0,
             .lock_refused = nullptr});
  for (int i = 0; i < 6000; ++i) REQUIRE(pool.take(kMiB / 2 + kPage) != nullptr);
  CHECK(pool->usage().chunks == 6000);
  // What each of them has left is used.
  for (int i = 0; i < 6000; ++i) REQUIRE(pool.take(kMiB / 4) != nullptr);
  CHECK(pool->usage().chunks == 6000);
}

TEST_CASE("a page that was just freed beside pages that went back stays a while") {
  Pool pool;
  char* small = pool.take(kPage);
  char* large = pool.take(4 * kMiB);
  pool.take(kPage);
  std::memset(large, 1, 4 * kMiB);
  pool->give_back(large, 4 * kMiB);
  CHECK_FALSE(pool->release_idle(0));
  *small = 1;
  pool->give_back(small, kPage);
  CHECK(pool->release_idle(uint64_t{3600} * 1'000'000'000));
  CHECK(resident(small, kPage) == 1);
}

TEST_CASE("pages that the program locked go back, too") {
  Pool pool;
  char* extent = pool.take(2 * kMiB);
  std::memset(extent, 1, 2 * kMiB);
  if (mlock(extent, kMiB) != 0) return;  // not allowed
  pool->give_back(extent, 2 * kMiB);
  CHECK_FALSE(pool->release_idle(0));
  CHECK(resident(extent, 2 * kMiB) == 0);
}

TEST_CASE("what comes back is kept where the system has no memory for the pool's records") {
  if (!kMayBeOut) return;
  constexpr size_t kExtents = 4096;
  Pool pool;
  static char* extents[kExtents];
  const bool split = GENERATE(false, true);
  if (split) {
    char* all = pool.take(kExtents * kPage);
    for (size_t i = 0; i < kExtents; ++i) extents[i] = all + i * kPage;
    for (size_t i = 1; i < kExtents; ++i) REQUIRE(pool->note_split());
  } else {
    for (char*& extent : extents) extent = pool.take(kPage);
  }
  {
    const NoMoreMemory now;
    for (size_t i = 0; i < kExtents; i += 2) pool->give_back(extents[i], kPage);  // none joins
  }
  CHECK(pool->usage().idle == kExtents / 2 * kPage);
  const uint64_t committed = pool->usage().committed;
  for (size_t i = 0; i < kExtents; i += 2) REQUIRE(pool.take(kPage) != nullptr);
  CHECK(pool->usage().committed == committed);
  CHECK(pool->usage().idle == 0);
}

TEST_CASE("random host extents never overlap, and nothing is lost, by several threads") {
  Pool pool({.chunk_bytes = 32 * kMiB,
             .locks = false,
             .eager = false,
             .most_locked = 0,
             .lock_refused = nullptr});
  std::atomic<int> wrong{0};
  std::atomic<bool> over{false};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    struct Held {
      uint64_t* start;
      uint64_t bytes, mark;
    };
    std::vector<Held> held;
    for (int i = 0; i < 4000; ++i) {
      if (held.size() > 40 || (random() % 2 == 0 && !held.empty())) {
        std::swap(held[random() % held.size()], held.back());
        const Held last = held.back();
        held.pop_back();
        wrong += last.start[0] != last.mark || last.start[last.bytes / 8 - 1] != last.mark;
        wrong += !pool->give_back(last.start, last.bytes);
        continue;
      }
      const uint64_t bytes = kPage * (1 + random() % (random() % 50 == 0 ? 12000 : 60));
      bool zero = random() % 4 == 0;
      const bool wanted = zero;
      auto* start = static_cast<uint64_t*>(pool->take(bytes, kPage << random() % 5, &zero));
      const uint64_t mark = (uint64_t{seed} << 32) + static_cast<uint64_t>(i) + 1;
      wrong += start == nullptr || (wanted && (start[0] != 0 || start[bytes / 8 - 1] != 0));
      if (start == nullptr) continue;
      start[0] = start[bytes / 8 - 1] = mark;
      held.push_back({start, bytes, mark});
    }
    for (const Held& each : held) pool->give_back(each.start, each.bytes);
  };
  std::thread releasing([&] {
    while (!over.load()) pool->release_idle(0);
  });
  std::vector<std::thread> threads;
  for (unsigned i = 1; i <= 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  over = true;
  releasing.join();
  CHECK(wrong == 0);
  CHECK(pool->usage().live == 0);
  pool->release_idle(0);
  CHECK(pool->usage().idle == 0);
  // All of a chunk is one extent again. A new one is begun meanwhile, and then what was never
  // handed out of the last one is joined to the rest of it.
  const uint64_t chunks = pool->usage().chunks;
  for (uint64_t i = 0; i <= chunks; ++i) REQUIRE(pool.take(32 * kMiB) != nullptr);
  CHECK(pool->usage().chunks == chunks + 1);
}

}  // namespace host_pool_test
