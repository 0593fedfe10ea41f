// SPDX-License-Identifier: Apache-2.0
// What a program repeats is found, wherever it begins, and nothing where nothing repeats; what was
// observed makes a plan.
#include "allocator/plan/period.h"

#include <memory>
#include <random>
#include <vector>

#include "allocator/plan/auto_plan.h"
#include "tests/catch.h"

namespace cistern::alloc::plan {
namespace {

// Requests of these sizes, each freed at once.
std::vector<Lifetime> requests_of(const std::vector<uint64_t>& sizes) {
  std::vector<Lifetime> requests;
  for (uint64_t i = 0; i < sizes.size(); ++i) {
    requests.push_back({.from = 2 * i, .to = 2 * i + 1, .bytes = sizes[i]});
  }
  return requests;
}

std::vector<uint64_t> random_sizes(uint64_t count, uint64_t kinds, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> sizes(count);
  for (uint64_t& size : sizes) size = 1 + random() % kinds;
  return sizes;
}

void append(std::vector<uint64_t>& to, const std::vector<uint64_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

TEST_CASE("period: the shortest one of the longest stretch, between other requests", "[plan]") {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    const auto iteration = random_sizes(5 + seed * 3, 1000000, seed);
    std::vector<uint64_t> sizes = random_sizes(seed * 7, 1000000, 100 + seed);
    const uint64_t before = sizes.size(), times = 2 + seed % 4;
    for (uint64_t i = 0; i < times; ++i) append(sizes, iteration);
    append(sizes, random_sizes(seed * 5, 1000000, 200 + seed));
    Repeats repeats;
    REQUIRE(find_repeats(requests_of(sizes), false, &repeats));
    CHECK(repeats.period == iteration.size());
    CHECK((repeats.from == before && repeats.to == before + times * iteration.size()));
    CHECK_FALSE(find_repeats(requests_of(sizes), true, &repeats));
  }
}

TEST_CASE("period: an iteration of equal layers is found, and not its layer", "[plan]") {
  std::vector<uint64_t> iteration{7};
  for (int layer = 0; layer < 24; ++layer) append(iteration, {100, 200, 300, 200});
  append(iteration, {9, 8});
  std::vector<uint64_t> sizes;
  for (int i = 0; i < 10; ++i) append(sizes, iteration);
  Repeats repeats;
  REQUIRE(find_repeats(requests_of(sizes), true, &repeats));
  CHECK(repeats.period == iteration.size());
  CHECK((repeats.from == 0 && repeats.to == sizes.size()));
}

TEST_CASE("period: nothing repeats", "[plan]") {
  Repeats repeats;
  CHECK_FALSE(find_repeats({}, false, &repeats));
  CHECK_FALSE(find_repeats(requests_of({1, 2, 3}), false, &repeats));
  CHECK_FALSE(find_repeats(requests_of(random_sizes(5000, 1u << 30, 3)), false, &repeats));
}

TEST_CASE("period: it begins where the least is live", "[plan]") {
  // In each iteration 100, 1, 1 and 1; the 100 is freed behind the second request.
  std::vector<Lifetime> requests;
  uint64_t call = 0;
  for (int i = 0; i < 6; ++i) {
    requests.push_back({.from = call, .to = call + 2, .bytes = 100});
    requests.push_back({.from = call + 1, .to = call + 3, .bytes = 1});
    requests.push_back({.from = call + 4, .to = call + 5, .bytes = 1});
    requests.push_back({.from = call + 6, .to = call + 7, .bytes = 1});
    call += 8;
  }
  const std::vector<Lifetime> later(requests.begin() + 1, requests.end());
  Repeats repeats;
  Begin begin;
  REQUIRE(find_repeats(later, true, &repeats));
  CHECK(repeats.period == 4);
  REQUIRE(find_begin(later, call, repeats, &begin));
  CHECK((begin.request + 1) % 4 != 1);  // not where the 100 is live
  CHECK(begin.request >= later.size() - 2 * repeats.period);
  CHECK(begin.before < repeats.period);
}

// Steps of three blocks. The least is live before the last of them, so an iteration begins there,
// and the second outlives it.
struct Stepping {
  Observer observer;
  uint64_t last = 0, next = 1;

  uint64_t get(uint64_t bytes) {
    observer.allocated(bytes, 0, next * 512);
    return next++ * 512;
  }
  void step(uint64_t bytes = 1000) {
    const uint64_t first = get(bytes), second = get(2 * bytes);
    observer.freed(first);
    if (last != 0) observer.freed(last);
    last = get(3 * bytes);
    observer.freed(second);
  }
};

TEST_CASE("auto plan: three repetitions make one, with what outlives the iteration outside",
          "[plan]") {
  auto program = std::make_unique<Stepping>();
  REQUIRE(program->observer.start());
  OwnPlans own;
  for (int i = 0; i < 2; ++i) program->step();
  CHECK_FALSE(own.make(program->observer, 512));
  for (int i = 0; i < 10; ++i) program->step();
  REQUIRE(own.make(program->observer, 512));
  const Plan& plan = own.plans()[0];
  REQUIRE(plan.head().requests == 3);
  CHECK((plan.head().period == Period::iteration && plan.head().bytes == 3072 + 1024));
  for (uint64_t i = 0; i < 3; ++i) {
    CHECK((plan.request(i).outside == 1) == (plan.request(i).bytes == 2000));
  }
  for (int i = 0; i < 10; ++i) program->step(5000);
  REQUIRE(own.make(program->observer, 512));
  CHECK(own.plans()[0].request(0).bytes % 5000 == 0);
  program->observer.stop();
}

// Each thread asks for its own sizes over and over; whose turn it is, is drawn.
TEST_CASE("auto plan: threads that repeat themselves, and not together, get a plan each",
          "[plan]") {
  auto observer = std::make_unique<Observer>();
  REQUIRE(observer->start());
  const std::vector<uint64_t> sizes[] = {random_sizes(7, 1000000, 1), random_sizes(11, 1000000, 2),
                                         random_sizes(13, 1000000, 3)};
  std::mt19937_64 random(1);
  uint64_t made[3] = {}, address = 512;
  for (int i = 0; i < 1000; ++i) {
    const auto thread = static_cast<unsigned>(random() % 3);
    observer->allocated(sizes[thread][made[thread]++ % sizes[thread].size()], thread, address);
    observer->freed(address);
    address += 512;
  }
  OwnPlans own;
  REQUIRE(own.make(*observer, 512));
  REQUIRE(own.plans().size() == 3);
  for (int i = 0; i < 3; ++i) {
    const PlanHead& head = own.plans()[static_cast<size_t>(i)].head();
    CHECK((head.period == Period::thread && head.requests == sizes[i].size()));
  }
  CHECK(own.requests() == 7 + 11 + 13);
  // One that asks for ever new sizes may repeat itself later, so it is waited for.
  for (uint64_t i = 0; i < 500; ++i) observer->allocated(5000000 + i, 3, address += 512);
  CHECK_FALSE(own.make(*observer, 512));
  CHECK(own.plans().empty());
  observer->stop();
}

TEST_CASE("observer: it forgets the older half, and looks become due less and less often",
          "[plan]") {
  auto program = std::make_unique<Stepping>();
  Array<Lifetime> requests;
  Array<uint16_t> threads;
  uint64_t calls = 0;
  program->observer.allocated(1, 0, 512);  // before it begins it sees nothing
  REQUIRE(program->observer.start());
  int looks = 0;
  for (uint64_t i = 0; i < Observer::kMost; ++i) {
    program->step(1000 + i);
    if (!program->observer.due()) continue;
    ++looks;
    REQUIRE(program->observer.look(&requests, &threads, &calls));
    REQUIRE(requests.size() <= Observer::kMost);
    const Lifetime& newest = requests[requests.size() - 1];
    CHECK((newest.bytes == 3 * (1000 + i) && newest.to == calls));
    CHECK(requests[0].from == 0);
    for (size_t k = 1; k + 1 < requests.size(); ++k) {
      if (requests[k].to > calls || requests[k].from <= requests[k - 1].from) FAIL("at " << k);
    }
  }
  CHECK((looks >= 12 && looks <= 14));
  program->observer.stop();
}

}  // namespace
}  // namespace cistern::alloc::plan
