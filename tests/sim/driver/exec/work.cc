// SPDX-License-Identifier: Apache-2.0
#include "exec/work.h"

#include <algorithm>

namespace simcuda {

void Order::add(const MarkerRef& marker) {
  if (marker == nullptr) return;
  clock.join(marker->clock);
  promised.join(marker->promised);
  if (reached(marker)) {
    reached_ns = std::max(reached_ns, marker->time_ns);
  } else {
    pending.push_back(marker);
  }
}

void Order::add(const Order& other) {
  clock.join(other.clock);
  promised.join(other.promised);
  reached_ns = std::max(reached_ns, other.reached_ns);
  pending.insert(pending.end(), other.pending.begin(), other.pending.end());
}

bool Order::prune() {
  std::erase_if(pending, [&](const MarkerRef& marker) {
    if (!reached(marker)) return false;
    reached_ns = std::max(reached_ns, marker->time_ns);
    return true;
  });
  return pending.empty();
}

}  // namespace simcuda
