// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/names.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace call_sites_test {

using cistern::alloc::CallSites;
using cistern::alloc::Frame;
using cistern::alloc::kMostFrames;

namespace {

Frame native(uint64_t offset) { return {.file = 1, .function = 0, .line = 0, .offset = offset}; }

}  // namespace

TEST_CASE("a call site is known by the hash it was added with") {
  CallSites sites;
  CHECK(sites.known(1) == 0);
  const Frame frames[] = {native(10), native(20)};
  CHECK(sites.add(0x123456789abcdef, frames, 2) == 1);
  CHECK(sites.known(0x123456789abcdef) == 1);
  CHECK(sites.known(0x1234567890bcdef) == 0);
  CHECK(sites.known(0x923456789abcdef) == 0);
  CHECK(sites.count() == 1);
  Frame out[kMostFrames];
  REQUIRE(sites.frames(1, out) == 2);
  CHECK(out[1] == native(20));
}

TEST_CASE("a stack with the frames of another is the same call site") {
  CallSites sites;
  const Frame frames[] = {native(10), native(20)};
  CHECK(sites.add(7, frames, 2) == 1);
  CHECK(sites.add(7000000, frames, 2) == 1);
  CHECK(sites.known(7) == 1);
  CHECK(sites.known(7000000) == 1);
  CHECK(sites.add(8, frames, 1) == 2);
}

TEST_CASE("call sites are bounded, and what there is no room for has none") {
  CallSites sites;
  for (uint64_t i = 0; i < CallSites::kMostSites; ++i) {
    const Frame frame = native(i);
    REQUIRE(sites.add(i * 0x9E3779B97F4A7C15u, &frame, 1) == i + 1);
  }
  const Frame another = native(CallSites::kMostSites);
  CHECK(sites.add(3, &another, 1) == 0);
  const Frame last = native(CallSites::kMostSites - 1);
  CHECK(sites.add(3, &last, 1) == CallSites::kMostSites);
}

TEST_CASE("threads find call sites while others add them") {
  CallSites sites;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 1; i < 3000; ++i) {
        const uint64_t hash = i * 0x9E3779B97F4A7C15u;
        uint32_t site = sites.known(hash);
        const Frame frame = native(i);
        if (site == 0) site = sites.add(hash, &frame, 1);
        Frame out[kMostFrames];
        if (sites.frames(site, out) != 1 || out[0] != frame) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(sites.count() == 2999);
}

}  // namespace call_sites_test
