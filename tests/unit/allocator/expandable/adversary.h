// SPDX-License-Identifier: Apache-2.0
// A program that asks for what its memory is least ready for: it fills the device with blocks of
// one size, frees all but what pins a unit each, and asks for another size, again and again. The
// same seed draws the same sizes under every strategy. Not thread-safe.
#pragma once

#include <random>
#include <vector>

#include "tests/unit/allocator/expandable/live_blocks.h"

namespace cistern::test {

// `Memory` has take(bytes), which is 0 where there is none, give(address), and live: LiveBlocks.
template <typename Memory>
class Adversary {
 public:
  Adversary(Memory& memory, uint64_t units, unsigned seed)
      : memory_(memory), units_(units), sizes_(seed), pins_(seed) {}

  // Blocks of a new size until one is refused: its bytes.
  uint64_t fill() {
    const uint64_t most = sizes_() % 2 == 0 ? kUnit / 2 : units_ * kUnit / 3;
    const uint64_t bytes = kUnit / 32 + sizes_() % most;
    while (memory_.take(bytes) != 0) {
    }
    return bytes;
  }

  // Frees what does not pin a unit that nothing else pins; now and then everything.
  void pin() {
    const uint64_t keep_every = 1 + sizes_() % 7;
    const bool keeps_any = sizes_() % 8 != 0;
    uint64_t last = 0;
    std::vector<uint64_t> given;
    for (const auto& [address, bytes] : memory_.live.blocks()) {
      const bool is_first = address / kUnit != last;
      last = address / kUnit;
      const bool pins = is_first && pins_() % keep_every == 0;
      if (!pins || !keeps_any) given.push_back(address);
    }
    for (const uint64_t address : given) memory_.give(address);
  }

 private:
  Memory& memory_;
  uint64_t units_;
  std::mt19937 sizes_, pins_;
};

}  // namespace cistern::test
