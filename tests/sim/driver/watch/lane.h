// SPDX-License-Identifier: Apache-2.0
//
// A stream's place in vector clocks. Places are used again, or clocks would grow with every stream
// ever made; but only when the host has waited for all the old stream did, so that nothing of it
// can be taken for the new one's past. A lane may be dropped by any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "watch/clock.h"

namespace simcuda {

class Lane {
 public:
  Lane() = default;
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // The next step. The first call takes a place that `host` has left behind.
  Epoch next(const VectorClock& host);

 private:
  std::optional<uint32_t> index_;
};

}  // namespace simcuda
