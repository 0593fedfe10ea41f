// SPDX-License-Identifier: Apache-2.0
#include "watch/lane.h"

#include <algorithm>
#include <mutex>

namespace simcuda {
namespace {

struct Lanes {
  std::mutex mutex;
  std::vector<uint64_t> steps{0};  // last step by lane; lane 0 is the host
  std::vector<uint32_t> vacant;    // whose stream is gone
};

Lanes& lanes() {
  static Lanes& all = *new Lanes;
  return all;
}

// Caller holds the mutex.
uint32_t take_lane(Lanes& all, const VectorClock& host) {
  const auto left_behind = std::find_if(all.vacant.begin(), all.vacant.end(), [&](uint32_t lane) {
    return host.covers({lane, all.steps[lane]});
  });
  if (left_behind != all.vacant.end()) {
    const uint32_t lane = *left_behind;
    all.vacant.erase(left_behind);
    return lane;
  }
  all.steps.push_back(0);
  return static_cast<uint32_t>(all.steps.size() - 1);
}

}  // namespace

Lane::~Lane() {
  if (!index_) return;
  const std::lock_guard lock(lanes().mutex);
  lanes().vacant.push_back(*index_);
}

Epoch Lane::next(const VectorClock& host) {
  Lanes& all = lanes();
  const std::lock_guard lock(all.mutex);
  if (!index_) index_ = take_lane(all, host);
  return {*index_, ++all.steps[*index_]};
}

}  // namespace simcuda
