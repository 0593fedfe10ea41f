// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/selection.h"

#include <algorithm>
#include <atomic>

#include "shim/pooled/chosen_sites.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

constinit std::atomic<uint64_t> pooled{
    0};  // of the chosen sizes so far, at most CISTERN_POOL_FIRST

bool has_chosen_size(uint64_t bytes) {
  const auto& chosen = policy().only_sizes;
  if (!chosen.set) return true;
  const config::SizeRange* ranges = chosen.value.range;
  return std::any_of(ranges, ranges + chosen.value.count, [bytes](const config::SizeRange& range) {
    return range.low <= bytes && bytes <= range.high;
  });
}

bool among_the_first() {
  const auto& first = policy().pool_first;
  if (!first.set) return true;
  uint64_t before = pooled.load(std::memory_order_relaxed);
  while (before < first.value && !pooled.compare_exchange_weak(before, before + 1)) {
  }
  return before < first.value;
}

}  // namespace

bool selected(uint64_t bytes) {
  return has_chosen_size(bytes) && site_is_pooled() && among_the_first();
}

}  // namespace cistern::shim
