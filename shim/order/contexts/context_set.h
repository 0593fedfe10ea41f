// SPDX-License-Identifier: Apache-2.0
// A set of contexts, by their numbers (context_slot.h). Numbers are reused, so a set that outlives
// one of its contexts may contain a later one instead. It never contains too few.
#pragma once

#include <bit>
#include <cstdint>

#include "allocator/reclaim/reclaim.h"

namespace cistern::shim {

class ContextSet {
 public:
  static constexpr uint32_t kWords = alloc::Reclaim::kMaxContexts / 64;

  constexpr void add(uint32_t number) { words_[number / 64] |= uint64_t{1} << number % 64; }
  constexpr void add(const ContextSet& other) {
    for (uint32_t i = 0; i < kWords; ++i) words_[i] |= other.words_[i];
  }
  constexpr bool has(uint32_t number) const {
    return (words_[number / 64] >> number % 64 & 1) != 0;
  }
  // Whether there are at least two contexts in the set.
  constexpr bool several() const {
    int count = 0;
    for (const uint64_t word : words_) count += std::popcount(word);
    return count > 1;
  }

  template <typename Visitor>
  constexpr void for_each(Visitor visit) const {
    for (uint32_t i = 0; i < kWords; ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(i * 64 + static_cast<uint32_t>(std::countr_zero(word)));
      }
    }
  }

  friend constexpr bool operator==(const ContextSet&, const ContextSet&) = default;

 private:
  uint64_t words_[kWords] = {};
};

}  // namespace cistern::shim
