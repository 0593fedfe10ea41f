// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/problem.h"

#include <algorithm>

namespace cistern::alloc::plan {
namespace {

// A block's begin or end.
struct Edge {
  uint64_t time;
  uint32_t block;
  uint32_t begins;

  // What ends at a time makes room for what begins then.
  bool operator<(const Edge& other) const {
    if (time != other.time) return time < other.time;
    return begins != other.begins ? begins < other.begins : block < other.block;
  }
};

}  // namespace

Built Problem::build(std::span<const Lifetime> lifetimes, uint64_t alignment) {
  if (lifetimes.size() > kMostBlocks) return Built::too_many;
  if (!blocks_.make(lifetimes.size())) return Built::no_memory;
  uint64_t sum = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& life = lifetimes[i];
    if (life.from >= life.to || life.bytes == 0) return Built::bad_lifetime;
    if (life.bytes > kMostBytes - sum || alignment > kMostBytes - sum - life.bytes) {
      return Built::too_many_bytes;
    }
    blocks_[i].bytes = (life.bytes + alignment - 1) & ~(alignment - 1);
    sum += blocks_[i].bytes;
  }
  return find_sections(lifetimes) && find_live(lifetimes) ? Built::yes : Built::no_memory;
}

bool Problem::find_sections(std::span<const Lifetime> lifetimes) {
  Array<Edge> edges;
  if (!edges.make(2 * lifetimes.size())) return false;
  for (uint32_t i = 0; i < lifetimes.size(); ++i) {
    edges[2 * i] = {.time = lifetimes[i].from, .block = i, .begins = 1};
    edges[2 * i + 1] = {.time = lifetimes[i].to, .block = i, .begins = 0};
  }
  std::sort(edges.begin(), edges.end());
  uint32_t section = 0;
  uint64_t live = 0;
  bool ending = false;
  for (const Edge& edge : edges) {
    if (edge.begins != 0) {
      section += ending;
      ending = false;
      blocks_[edge.block].first = section;
      overlaps_ += live++;
    } else {
      ending = true;
      blocks_[edge.block].last = section;
      --live;
    }
  }
  sections_ = lifetimes.empty() ? 0 : section + 1;
  return true;
}

bool Problem::find_live(std::span<const Lifetime> lifetimes) {
  Array<uint64_t> unaligned;
  if (!live_.make(sections_) || !unaligned.make(sections_)) return false;
  const auto add = [&](uint32_t from, uint64_t bytes, uint64_t asked) {
    if (from == sections_) return;
    live_[from] += bytes;  // a difference: wraps around for what ends
    unaligned[from] += asked;
  };
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    add(blocks_[i].first, blocks_[i].bytes, lifetimes[i].bytes);
    add(blocks_[i].last + 1, -blocks_[i].bytes, -lifetimes[i].bytes);
  }
  for (uint32_t section = 0; section < sections_; ++section) {
    if (section != 0) live_[section] += live_[section - 1];
    if (section != 0) unaligned[section] += unaligned[section - 1];
    lower_bound_ = std::max(lower_bound_, live_[section]);
    lower_bound_unaligned_ = std::max(lower_bound_unaligned_, unaligned[section]);
  }
  return true;
}

}  // namespace cistern::alloc::plan
