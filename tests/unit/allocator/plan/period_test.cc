// SPDX-License-Identifier: Apache-2.0
// What a program repeats is found, wherever it begins, and nothing where nothing repeats; what was
// observed makes a plan.
#include "allocator/plan/period.h"

#include <memory>
#include <random>
#include <vector>

#include "allocator/plan/period.h"
#include "allocator/plan/replay.h"
#include "tests/catch.h"

namespace cistern::alloc::plan::period_test {
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
    REQUIRE(find_repeats({requests_of(sizes)}, false, &repeats));
    CHECK(repeats.period == iteration.size());
    CHECK((repeats.from == before && repeats.to == before + times * iteration.size()));
    CHECK_FALSE(find_repeats({requests_of(sizes)}, true, &repeats));
  }
}

TEST_CASE("period: an iteration of equal layers is found, and not its layer", "[plan]") {
  std::vector<uint64_t> iteration{7};
  for (int layer = 0; layer < 24; ++layer) append(iteration, {100, 200, 300, 200});
  append(iteration, {9, 8});
  std::vector<uint64_t> sizes;
  for (int i = 0; i < 10; ++i) append(sizes, iteration);
  Repeats repeats;
  REQUIRE(find_repeats({requests_of(sizes)}, true, &repeats));
  CHECK(repeats.period == iteration.size());
  CHECK((repeats.from == 0 && repeats.to == sizes.size()));
}

TEST_CASE("period: nothing repeats", "[plan]") {
  Repeats repeats;
  CHECK_FALSE(find_repeats({}, false, &repeats));
  CHECK_FALSE(find_repeats({requests_of({1, 2, 3})}, false, &repeats));
  CHECK_FALSE(find_repeats({requests_of(random_sizes(5000, 1u << 30, 3))}, false, &repeats));
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
  REQUIRE(find_repeats({later}, true, &repeats));
  CHECK(repeats.period == 4);
  REQUIRE(find_begin({later}, call, repeats, &begin));
  CHECK((begin.request + 1) % 4 != 1);  // not where the 100 is live
  CHECK(begin.request >= later.size() - 2 * repeats.period);
  CHECK(begin.before < repeats.period);
}

// Steps of three blocks. The least is live before the last of them, so an iteration begins there,
// and the second outlives it.
struct Stepping {
  Observer observer;
  uint64_t last = 0, next = 1, origin = 0;
  uint32_t phase = 0;

  uint64_t get(uint64_t bytes) {
    observer.allocated(bytes, {.thread = 0, .phase = phase, .origin = origin}, next * 512);
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

TEST_CASE("auto plan: two repetitions make none, however long they are", "[plan]") {
  auto observer = std::make_unique<Observer>();
  const std::vector<uint64_t> sizes = random_sizes(100, 1000000, 6);
  for (const int times : {2, 3}) {
    REQUIRE(observer->start());
    for (int i = 0; i < times; ++i) {
      for (const uint64_t bytes : sizes) {
        observer->allocated(bytes, {0, 0, 0}, 512);
        observer->freed(512);
      }
    }
    OwnPlans own;
    CHECK(own.make(*observer, 512) == (times == 3));
    observer->stop();
  }
}

// A look may become due while a plan is made. It must not find the plan left before the program
// could enter it.
TEST_CASE("auto plan: a plan is left for a period once a period was asked for outside of it",
          "[plan]") {
  auto program = std::make_unique<Stepping>();
  REQUIRE(program->observer.start());
  OwnPlans own;
  for (int i = 0; i < 12; ++i) program->step();
  REQUIRE(own.make(program->observer, 512));
  REQUIRE(own.plans()[0].head().requests == 3);
  program->observer.stop();
  auto replay = std::make_unique<Replay>();
  auto ledger = std::make_unique<Ledger>();
  for (int times = 0; times < 2; ++times) {
    replay->follow(own.plans(), ledger.get());
    PlanPlace place;
    for (int requests = 0; requests < 3; ++requests) {
      CHECK((replay->left() && !replay->left_for_a_period()));
      CHECK_FALSE(replay->next(77, 0, 0, &place));
    }
    CHECK(replay->left_for_a_period());
  }
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
    observer->allocated(sizes[thread][made[thread]++ % sizes[thread].size()], {thread, 0, 0},
                        address);
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
  for (uint64_t i = 0; i < 500; ++i) observer->allocated(5000000 + i, {3, 0, 0}, address += 512);
  CHECK_FALSE(own.make(*observer, 512));
  CHECK(own.plans().empty());
  observer->stop();
}

// Requests of one size, freed at once, whose origins are these.
Observed of_one_size(const std::vector<uint64_t>& origins) {
  Observed seen;
  REQUIRE(seen.make(origins.size()));
  for (uint64_t i = 0; i < origins.size(); ++i) {
    seen.lives[i] = {.from = 2 * i, .to = 2 * i + 1, .bytes = 1000};
    seen.origins[i] = origins[i];
  }
  return seen;
}

TEST_CASE("period: equal sizes of two streams, or call sites, are not one another", "[plan]") {
  Repeats repeats;
  std::vector<uint64_t> origins{3, 4, 5, 6, 7, 8};  // these come once
  for (int i = 0; i < 12; ++i) append(origins, {1, 1, 2, 1, 2});
  const Observed seen = of_one_size(origins);
  REQUIRE(
      find_repeats({.lives = seen.lives.span(), .origins = seen.origins.span()}, true, &repeats));
  CHECK((repeats.period == 5 && repeats.from == 6 && repeats.to == origins.size()));
  REQUIRE(find_repeats({.lives = seen.lives.span()}, true, &repeats));
  CHECK(repeats.period == 1);
}

TEST_CASE("period: where origins are new each time, sizes tell it", "[plan]") {
  std::vector<uint64_t> sizes, origins;
  const auto iteration = random_sizes(9, 1000000, 4);
  for (uint64_t i = 0; i < 10; ++i) {
    append(sizes, iteration);
    // Two requests in a row repeat by origin, too, many times within the last iteration.
    for (uint64_t k = 0; k < iteration.size(); ++k) origins.push_back(100 * i + k);
  }
  for (int i = 0; i < 6; ++i) append(sizes, {5, 6});
  Repeats repeats;
  Requests requests{.lives = {}, .origins = origins};
  const auto lives = requests_of({sizes.begin(), sizes.end() - 12});
  requests.lives = lives;
  REQUIRE(find_repeats(requests, true, &repeats));
  CHECK(repeats.period == iteration.size());
  CHECK((repeats.from == 0 && repeats.to == lives.size()));
  // A short stretch that repeats by origin does not stand for a long one that does by size.
  for (int i = 0; i < 4; ++i) append(origins, {7, 8, 9});
  const auto more = requests_of({sizes.begin(), sizes.end()});
  requests = {.lives = more, .origins = origins};
  REQUIRE(find_repeats(requests, false, &repeats));
  CHECK((repeats.period == iteration.size() && repeats.to == lives.size()));
}

TEST_CASE("period: it begins with a phase, though less is live elsewhere", "[plan]") {
  // Each phase: 100, 1, 1, 1, and the 100 of it is live until the next one has begun.
  std::vector<Lifetime> lives;
  std::vector<uint32_t> phases;
  for (uint64_t i = 0; i < 6; ++i) {
    lives.push_back({.from = 10 * i, .to = 10 * i + 11, .bytes = 100});
    lives.push_back({.from = 10 * i + 2, .to = 10 * i + 3, .bytes = 1});
    lives.push_back({.from = 10 * i + 4, .to = 10 * i + 5, .bytes = 1});
    lives.push_back({.from = 10 * i + 6, .to = 10 * i + 7, .bytes = 1});
    for (int k = 0; k < 4; ++k) phases.push_back(k == 3 ? 0 : static_cast<uint32_t>(i + 1));
  }
  Repeats repeats;
  Begin begin;
  REQUIRE(find_repeats({lives}, true, &repeats));
  REQUIRE(find_begin({.lives = lives, .phases = phases}, 62, repeats, &begin));
  CHECK((begin.request % 4 == 0 && begin.before == 0));
  // Phases that do not come once a period tell nothing.
  std::fill(phases.begin(), phases.end(), 1);
  REQUIRE(find_begin({.lives = lives, .phases = phases}, 62, repeats, &begin));
  Begin without;
  REQUIRE(find_begin({lives}, 62, repeats, &without));
  CHECK(begin.request == without.request);
}

TEST_CASE("auto plan: of equal sizes, as many make an iteration as it takes to free most of them",
          "[plan]") {
  auto observer = std::make_unique<Observer>();
  REQUIRE(observer->start());
  uint64_t address = 0;
  for (int i = 0; i < 20; ++i) {
    for (uint64_t k = 1; k <= 6; ++k) observer->allocated(1000, {0, 0, 0}, address + 512 * k);
    for (uint64_t k = 1; k <= 6; ++k) observer->freed(address + 512 * k);
    address += 4096;
  }
  OwnPlans own;
  REQUIRE(own.make(*observer, 512));
  const Plan& plan = own.plans()[0];
  uint64_t outside = 0;
  for (uint64_t i = 0; i < plan.head().requests; ++i) outside += plan.request(i).outside;
  CHECK((plan.head().requests > 1 && 2 * outside <= plan.head().requests));
  observer->stop();
}

TEST_CASE("auto plan: what repeats in phases alone is planned, without what lies between",
          "[plan]") {
  auto program = std::make_unique<Stepping>();
  REQUIRE(program->observer.start());
  OwnPlans own;
  const auto steps = [&](int count, bool phases) {
    for (int i = 0; i < count; ++i) {
      program->phase = phases ? static_cast<uint32_t>(program->next) : 0;
      program->step();
      program->phase = 0;
      // Ever new sizes, and ever more of them.
      for (int k = 0; k < 1 + i % 3; ++k)
        program->observer.freed(program->get(100000 + program->next));
    }
  };
  steps(20, false);
  CHECK_FALSE(own.make(program->observer, 512));
  program->observer.stop();
  REQUIRE(program->observer.start());
  steps(20, true);
  REQUIRE(own.make(program->observer, 512));
  const Plan& plan = own.plans()[0];
  CHECK((plan.head().period == Period::phase && plan.head().requests == 3));
  CHECK(plan.request(0).bytes == 1000);
  program->observer.stop();
}

// Whoever is asked to look may find nothing to do, or nobody may be there to do it.
TEST_CASE("observer: it asks for a look until it gets one", "[plan]") {
  auto observer = std::make_unique<Observer>();
  REQUIRE(observer->start());
  Observed seen;
  const auto asked_in = [&](int requests) {
    int asked = 0;
    for (int i = 0; i < requests; ++i) asked += observer->allocated(1000, {0, 0, 0}, 512) ? 1 : 0;
    return asked;
  };
  CHECK(asked_in(255) == 0);
  CHECK(asked_in(1) == 1);
  CHECK(asked_in(1000) == 3);
  REQUIRE(observer->look(&seen));
  CHECK(asked_in(1255) == 0);  // as many as before
  CHECK(asked_in(1) == 1);
  observer->stop();
  CHECK(asked_in(1000) == 0);
}

TEST_CASE("observer: a block that it did not see come is none that it saw go", "[plan]") {
  auto observer = std::make_unique<Observer>();
  REQUIRE(observer->start());
  observer->allocated(1000, {0, 0, 0}, 512);
  observer->freed(512);
  observer->freed(512);  // came while nothing was observed
  observer->allocated(2000, {0, 0, 0}, 1024);
  Observed seen;
  REQUIRE(observer->look(&seen));
  CHECK((seen.lives[0].from == 0 && seen.lives[0].to == 1));
  CHECK((seen.lives[1].from == 2 && seen.lives[1].to == seen.calls));
  observer->stop();
}

TEST_CASE("observer: it forgets the older half, and looks become due less and less often",
          "[plan]") {
  auto program = std::make_unique<Stepping>();
  Observed seen;
  program->observer.allocated(1, {0, 0, 0}, 512);  // before it begins it sees nothing
  REQUIRE(program->observer.start());
  int looks = 0;
  for (uint64_t i = 0; i < Observer::kMost; ++i) {
    program->step(1000 + i);
    if (!program->observer.due()) continue;
    ++looks;
    REQUIRE(program->observer.look(&seen));
    const auto requests = seen.lives.span();
    REQUIRE(requests.size() <= Observer::kMost);
    const Lifetime& newest = requests[requests.size() - 1];
    CHECK((newest.bytes == 3 * (1000 + i) && newest.to == seen.calls));
    CHECK(requests[0].from == 0);
    for (size_t k = 1; k + 1 < requests.size(); ++k) {
      const uint64_t calls = requests[k].from - requests[k - 1].from;  // three are frees at most
      if (requests[k].to > seen.calls || calls == 0 || calls > 4) FAIL("at " << k);
    }
  }
  CHECK((looks >= 12 && looks <= 14));
  program->observer.stop();
}

}  // namespace
}  // namespace cistern::alloc::plan::period_test
