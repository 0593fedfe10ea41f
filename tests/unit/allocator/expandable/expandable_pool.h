// SPDX-License-Identifier: Apache-2.0
// A pool of the expandable strategy over so many units (and memory `beside` them that is none), and
// what its tests ask of it.
#pragma once

#include <catch2/catch.hpp>
#include <iterator>
#include <map>
#include <memory>

#include "tests/unit/allocator/fake_source.h"

namespace cistern::test {

inline constexpr uint64_t kUnit = 2 * kMiB;

struct ExpandablePool : Pool {
  explicit ExpandablePool(uint64_t units, uint64_t first_mib = 0, uint64_t step_mib = 0,
                          uint64_t align = 512, alloc::FillMode fill_mode = alloc::FillMode::off,
                          uint64_t beside = 0)
      : Pool(beside, {}, {}, fill_mode) {
    source.fake_units = std::make_unique<FakeUnits>(units);
    sizes = {
        alloc::StrategyKind::expandable, first_mib * kMiB, step_mib * kMiB, align, false, false};
    init();
  }
  FakeUnits& units() { return *source.fake_units; }

  // The same with what a test knows of its blocks.
  uint64_t take(uint64_t bytes) {
    const uint64_t address = allocate(bytes);
    if (address == 0) return 0;
    const auto behind = live.lower_bound(address);
    const bool apart = behind == live.end() || address + bytes <= behind->first;
    const bool begins =
        behind == live.begin() || std::prev(behind)->first + std::prev(behind)->second <= address;
    if (!apart || !begins || !units().has(address, bytes)) FAIL("not the program's alone");
    live[address] = bytes;
    for_each_unit(address, bytes, [this](uint64_t unit) { ++held_[unit]; });
    return address;
  }
  void give(uint64_t address) {
    if (free(address) != alloc::Freed::done) FAIL("not freed");
    for_each_unit(address, live[address], [this](uint64_t unit) {
      if (--held_[unit] == 0) held_.erase(unit);
    });
    live.erase(address);
  }

  // How many units hold a byte of the test's.
  uint64_t held() const { return held_.size(); }

  std::map<uint64_t, uint64_t> live;

 private:
  template <typename Visitor>
  static void for_each_unit(uint64_t address, uint64_t bytes, Visitor visit) {
    for (uint64_t unit = address / kUnit; unit <= (address + bytes - 1) / kUnit; ++unit)
      visit(unit);
  }

  std::map<uint64_t, uint64_t> held_;
};

inline std::unique_ptr<ExpandablePool> expandable(uint64_t units) {
  return std::make_unique<ExpandablePool>(units);
}

}  // namespace cistern::test
