// SPDX-License-Identifier: Apache-2.0
//
// A piece of device work as data: what it does, what it touches, what it must come after. Whoever
// executes it (threads today, any scheduler tomorrow) needs nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/cuda.h"
#include "table/calls.h"

namespace simcuda {

// The point in a stream after one piece of work.
struct Marker {
  std::atomic<bool> done{false};
  int64_t time_ns = 0;  // when it was reached; written before done
};

using MarkerRef = std::shared_ptr<Marker>;
using Markers = std::vector<MarkerRef>;

inline bool reached(const MarkerRef& marker) {
  return marker == nullptr || marker->done.load(std::memory_order_acquire);
}

// Removes what has been reached; true if nothing is left.
bool prune(Markers& markers);

// Memory a piece of work touches.
struct Access {
  CUdeviceptr address;
  uint64_t bytes;
  bool writes;
};

struct Work {
  Call call{};                  // the driver call it came from
  std::function<void()> run{};  // empty: only order
  std::vector<Access> accesses{};
  Markers after{};   // must be reached before it runs
  MarkerRef done{};  // reached when it has run; set by whoever orders it
};

}  // namespace simcuda
