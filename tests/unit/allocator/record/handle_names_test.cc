// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/names.h"

#include <memory>

#include "tests/catch.h"

namespace handle_names_test {

namespace {

using cistern::alloc::HandleNames;

const void* handle(uintptr_t i) { return reinterpret_cast<const void*>(i * 4096); }

TEST_CASE("a handle has the name that was set last") {
  const auto handles = std::make_unique<HandleNames>();
  CHECK(handles->of(handle(1)) == 0);
  handles->set(handle(1), 5);
  handles->set(handle(2), 6);
  CHECK(handles->of(handle(1)) == 5);
  handles->set(handle(1), 7);
  CHECK(handles->of(handle(1)) == 7);
  CHECK(handles->of(handle(2)) == 6);
}

TEST_CASE("no handle has no name") {
  const auto handles = std::make_unique<HandleNames>();
  handles->set(nullptr, 5);
  CHECK(handles->of(nullptr) == 0);
}

TEST_CASE("a handle beyond the bound has no name, and those before keep theirs") {
  const auto handles = std::make_unique<HandleNames>();
  constexpr uint32_t kMost = HandleNames::kMostHandles;
  for (uint32_t i = 1; i <= kMost; ++i) handles->set(handle(i), i);
  handles->set(handle(kMost + 1), 9);
  CHECK(handles->of(handle(kMost + 1)) == 0);
  handles->set(handle(kMost), 3);
  CHECK(handles->of(handle(kMost)) == 3);
  for (uint32_t i = 1; i < kMost; ++i) REQUIRE(handles->of(handle(i)) == i);
}

}  // namespace

}  // namespace handle_names_test
