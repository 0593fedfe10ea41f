// SPDX-License-Identifier: Apache-2.0
// Plans of a few requests, and pools that follow them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/allocator/fake_source.h"

namespace cistern::test {

namespace plan = alloc::plan;

struct OfRequests {
  explicit OfRequests(std::vector<plan::PlannedRequest> all, uint64_t bytes, bool again = true)
      : OfRequests(std::move(all), bytes, again ? plan::Period::iteration : plan::Period::run) {}
  OfRequests(std::vector<plan::PlannedRequest> all, uint64_t bytes, plan::Period period)
      : requests(std::move(all)) {
    plan::PlanHead head{};
    head.period = period;
    head.requests = requests.size();
    head.bytes = bytes;
    head.alignment = 512;
    plan = plan::Plan(head, requests.data());
  }
  std::vector<plan::PlannedRequest> requests;
  plan::Plan plan;
};

inline plan::PlannedRequest at(uint64_t offset, uint64_t bytes) {
  plan::PlannedRequest request{};
  request.offset = offset;
  request.bytes = bytes;
  return request;
}

inline std::unique_ptr<Pool> pool_with(const plan::Plan& plan) {
  auto p = std::make_unique<Pool>();
  p->set_plan(&plan);
  return p;
}

// Takes 1000 bytes at 0, 3000 behind them, and 4000 at 0 once the first is free.
inline OfRequests three() { return OfRequests({at(0, 1000), at(4096, 3000), at(0, 4000)}, 8192); }

}  // namespace cistern::test
