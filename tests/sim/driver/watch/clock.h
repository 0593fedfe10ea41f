// SPDX-License-Identifier: Apache-2.0
//
// Vector clocks: how far each lane (a line of work whose parts follow one another: a stream, the
// host) is known to have come. They say what is ordered before what, whatever ran when. Plain
// values; an empty clock knows nothing and costs nothing, which is what they are while nothing is
// watched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace simcuda {

// One step of one lane. Steps count from 1.
struct Epoch {
  uint32_t lane;
  uint64_t step;
};

class VectorClock {
 public:
  // The step is before, or part of, what this clock knows.
  bool covers(const Epoch& epoch) const {
    return epoch.lane < steps_.size() && steps_[epoch.lane] >= epoch.step;
  }

  void join(const VectorClock& other) {
    if (other.steps_.empty()) return;
    if (other.steps_.size() > steps_.size()) steps_.resize(other.steps_.size());
    steps_[0] = std::max(steps_[0], other.steps_[0]);
    advance(steps_.data(), other.steps_.data(), other.steps_.size());
  }

  void set(const Epoch& epoch) {
    if (epoch.lane >= steps_.size()) steps_.resize(epoch.lane + size_t{1});
    steps_[epoch.lane] = epoch.step;
  }

 private:
  // ThreadSanitizer would take most of its time for this loop. join() shows it the first element:
  // of a clock that two threads use at once it sees that.
  __attribute__((no_sanitize("thread"))) static void advance(uint64_t* steps,
                                                             const uint64_t* others, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (steps[i] < others[i]) steps[i] = others[i];
    }
  }

  std::vector<uint64_t> steps_;
};

}  // namespace simcuda
