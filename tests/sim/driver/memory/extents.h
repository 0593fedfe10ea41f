// SPDX-License-Identifier: Apache-2.0
//
// Free stretches of an address range: best fit, lowest address among equals, neighbours merged.
// Counts are in whatever unit the owner uses. Not thread-safe: the owner locks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace simcuda {

class Extents {
 public:
  // Makes [first, first + count) free.
  void give(uint64_t first, uint64_t count) {
    auto after = by_start_.lower_bound(first);
    if (after != by_start_.end() && after->first == first + count) {
      count += after->second;
      after = drop(after);
    }
    if (after != by_start_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == first) {
        first = before->first;
        count += before->second;
        drop(before);
      }
    }
    by_start_.emplace(first, count);
    by_size_.emplace(count, first);
  }

  // The start of a free stretch of this length, now taken.
  std::optional<uint64_t> take(uint64_t count) {
    const auto fit = by_size_.lower_bound({count, 0});
    if (fit == by_size_.end()) return std::nullopt;
    const auto [size, first] = *fit;
    drop(by_start_.find(first));
    if (size > count) {
      by_start_.emplace(first + count, size - count);
      by_size_.emplace(size - count, first + count);
    }
    return first;
  }

 private:
  using ByStart = std::map<uint64_t, uint64_t>;

  ByStart::iterator drop(ByStart::iterator at) {
    by_size_.erase({at->second, at->first});
    return by_start_.erase(at);
  }

  ByStart by_start_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (size, start)
};

}  // namespace simcuda
