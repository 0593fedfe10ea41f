// SPDX-License-Identifier: Apache-2.0
#include "shim/order/streams/stream_marks.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "tests/catch.h"

using cistern::shim::StreamRegistry;

namespace {

CUstream stream(uintptr_t n) { return reinterpret_cast<CUstream>(16 * n); }
CUcontext context(uintptr_t n) { return reinterpret_cast<CUcontext>(n); }

std::unique_ptr<StreamRegistry> new_registry() { return std::make_unique<StreamRegistry>(); }

CUcontext add(StreamRegistry& registry, uintptr_t number, uintptr_t owner = 1,
              bool blocking = false) {
  return registry.add({stream(number), context(owner), blocking});
}

bool take_out(StreamRegistry& registry, uintptr_t number) {
  StreamRegistry::Entry entry;
  return registry.take_out(stream(number), &entry);
}

std::vector<CUstream> non_blocking(StreamRegistry& registry, uintptr_t owner = 1) {
  std::vector<CUstream> all;
  int position = 0;
  while (CUstream next = registry.next_non_blocking(context(owner), &position)) all.push_back(next);
  return all;
}

}  // namespace

TEST_CASE("the non-blocking streams of a context are listed, and no others") {
  const auto registry = new_registry();
  add(*registry, 1);
  add(*registry, 2, 1, /*blocking=*/true);
  add(*registry, 3, 2);
  add(*registry, 4);
  CHECK(non_blocking(*registry) == std::vector{stream(1), stream(4)});
  CHECK(non_blocking(*registry, 2) == std::vector{stream(3)});
  CHECK(registry->knows(stream(2)));
  CHECK_FALSE(registry->knows(stream(5)));
}

TEST_CASE("a stream is taken out with what is known of it, once") {
  const auto registry = new_registry();
  add(*registry, 1, 7, /*blocking=*/true);
  StreamRegistry::Entry entry;
  REQUIRE(registry->take_out(stream(1), &entry));
  CHECK(entry.context == context(7));
  CHECK(entry.blocking);
  CHECK_FALSE(take_out(*registry, 1));
  CHECK_FALSE(registry->take_out(nullptr, &entry));
}

TEST_CASE("a handle the driver uses again is a new stream") {
  const auto registry = new_registry();
  add(*registry, 1, 1);
  take_out(*registry, 1);
  CHECK(add(*registry, 1, 2) == nullptr);
  CHECK(non_blocking(*registry, 1).empty());
  CHECK(non_blocking(*registry, 2) == std::vector{stream(1)});
}

TEST_CASE("a handle that is created twice ended out of sight, with its context or alone") {
  const auto registry = new_registry();
  CHECK(add(*registry, 1) == nullptr);
  CHECK(add(*registry, 1, 2) == context(1));
  CHECK(non_blocking(*registry, 1).empty());
}

TEST_CASE("a context takes its streams along and no others") {
  const auto registry = new_registry();
  add(*registry, 1, 1);
  add(*registry, 2, 2);
  registry->context_gone(context(1));
  CHECK(non_blocking(*registry, 1).empty());
  CHECK(non_blocking(*registry, 2) == std::vector{stream(2)});
}

TEST_CASE("a stream without room leaves the list incomplete until it is gone, and work unproven") {
  const auto registry = new_registry();
  for (uintptr_t i = 1; i <= StreamRegistry::kMaxStreams; ++i) add(*registry, i);
  CHECK(registry->complete());
  CHECK_FALSE(registry->unlisted_gone());
  add(*registry, StreamRegistry::kMaxStreams + 1);
  CHECK_FALSE(registry->complete());
  CHECK(registry->knows(stream(StreamRegistry::kMaxStreams + 1)));
  CHECK_FALSE(take_out(*registry, StreamRegistry::kMaxStreams + 1));
  CHECK(registry->losses() == 0);
  CHECK(registry->unlisted_gone());
  CHECK(registry->losses() == 1);
  CHECK(registry->complete());
}

TEST_CASE("room that a stream leaves is used again") {
  const auto registry = new_registry();
  for (uintptr_t i = 1; i <= StreamRegistry::kMaxStreams; ++i) add(*registry, i);
  for (uintptr_t i = 1; i <= 10; ++i) {
    take_out(*registry, i);
    add(*registry, StreamRegistry::kMaxStreams + i);
  }
  CHECK(registry->complete());
  CHECK(non_blocking(*registry).size() == StreamRegistry::kMaxStreams);
}

TEST_CASE("a list that was given up stays incomplete") {
  const auto registry = new_registry();
  registry->give_up();
  CHECK_FALSE(registry->complete());
  CHECK(registry->unlisted_gone());
  CHECK_FALSE(registry->complete());
}

TEST_CASE("a stream listed throughout is met by every walk while others come and go") {
  const auto registry = new_registry();
  for (uintptr_t i = 1; i <= 20; ++i) add(*registry, i);
  std::thread churn([&] {
    for (int round = 0; round < 2000; ++round) {
      for (uintptr_t i = 2; i <= 20; i += 2) take_out(*registry, i);
      for (uintptr_t i = 2; i <= 20; i += 2) add(*registry, i);
    }
  });
  bool always = true;
  for (int walk = 0; walk < 500; ++walk) {
    const std::vector<CUstream> met = non_blocking(*registry);
    for (uintptr_t i = 1; i <= 20; i += 2) {
      always = always && std::count(met.begin(), met.end(), stream(i)) == 1;
    }
  }
  churn.join();
  CHECK(always);
}
