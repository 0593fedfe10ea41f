// SPDX-License-Identifier: Apache-2.0
// A pool of the expandable strategy over so many units (and memory `beside` them that is none), and
// what its tests ask of it.
#pragma once

#include <memory>

#include "tests/catch.h"
#include "tests/unit/allocator/expandable/live_blocks.h"
#include "tests/unit/allocator/fake_source.h"

namespace cistern::test {

struct ExpandablePool : Pool {
  explicit ExpandablePool(uint64_t units, uint64_t first_mib = 0, uint64_t step_mib = 0,
                          uint64_t align = 512, alloc::FillMode fill_mode = alloc::FillMode::off,
                          uint64_t beside = 0)
      : Pool(beside, {}, {}, fill_mode) {
    source.fake_units = std::make_unique<FakeUnits>(units);
    source.told_memory = 8 * units * kUnit;  // not as much as a pool takes that does not know
    sizes = {
        alloc::StrategyKind::expandable, first_mib * kMiB, step_mib * kMiB, align, false, false};
    init();
  }
  FakeUnits& units() { return *source.fake_units; }

  // The same with what a test knows of its blocks.
  uint64_t take(uint64_t bytes) {
    const uint64_t address = allocate(bytes);
    if (address == 0) return 0;
    if (!live.add(address, bytes) || !units().has(address, bytes)) FAIL("not the program's alone");
    return address;
  }
  void give(uint64_t address) {
    if (free(address) != alloc::Freed::done) FAIL("not freed");
    live.remove(address);
  }

  LiveBlocks live;
};

inline std::unique_ptr<ExpandablePool> expandable(uint64_t units) {
  return std::make_unique<ExpandablePool>(units);
}

}  // namespace cistern::test
