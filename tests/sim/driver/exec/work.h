// SPDX-License-Identifier: Apache-2.0
//
// A piece of device work as data: what it does, what it touches, what it must come after. Whoever
// executes it (a thread per stream, or the scheduler) needs nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/cuda.h"
#include "table/calls.h"
#include "watch/clock.h"
#include "watch/touch.h"

namespace simcuda {

struct Operation;

// The point in a stream after one piece of work.
struct Marker {
  std::atomic<bool> done{false};
  int64_t time_ns = 0;  // when it was reached; written before done
  VectorClock clock{};  // what has happened by then; set when the work is ordered
  Epoch at{};           // its own step; 0 while no clocks are kept
  // While races are looked for: what it was; and what the driver alone would have had happen by
  // then (watch/oracle.h).
  std::shared_ptr<const Operation> by{};
  VectorClock promised{};
  uint64_t call = 0;  // of the program, in the order in which they began
};

using MarkerRef = std::shared_ptr<Marker>;

inline bool reached(const MarkerRef& marker) {
  return marker == nullptr || marker->done.load(std::memory_order_acquire);
}

// What something comes after. Markers are forgotten when they are reached; what they stood for
// stays in the clock, so that order does not depend on what was quick.
struct Order {
  std::vector<MarkerRef> pending{};
  VectorClock clock{}, promised{};
  int64_t reached_ns = 0;  // time of the latest marker forgotten

  void add(const MarkerRef& marker);  // null adds nothing
  void add(const Order& other);
  // Forgets what has been reached; true if nothing is left.
  bool prune();
};

// Memory a piece of work touches.
struct Access {
  CUdeviceptr address;
  uint64_t bytes;
  Touch touch;
};

struct Work {
  Call call{};                   // the driver call it came from
  const char* kernel = nullptr;  // name of a launch
  std::function<void()> run{};   // empty: only order
  uint64_t takes_ns = 0;         // device time of a kernel, beside its body's
  bool calls_host = false;       // run is a callback of the program
  bool of_pool = false;          // a record or a wait that the program did not ask for
  std::vector<Access> accesses{};
  CUdeviceptr ends = 0;  // allocation that is freed by it
  Order after{};         // must be reached before it runs
  int64_t given_ns = 0;  // when the host gave it
  MarkerRef done{};      // reached when it has run; set by whoever orders it
};

}  // namespace simcuda
