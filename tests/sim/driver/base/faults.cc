// SPDX-License-Identifier: Apache-2.0
#include "base/faults.h"

#include <array>
#include <atomic>
#include <string_view>
#include <vector>

namespace simcuda {
namespace {

struct Slot {
  std::vector<FailRule> rules;
  std::atomic<uint64_t> uses{0};
  uint64_t latency_ns = 0;
};

std::array<Slot, kCallCount>& slots() {
  static auto& all = *new std::array<Slot, kCallCount>;
  return all;
}

bool means(std::string_view wanted, const CallInfo& call) {
  return wanted == call.symbol || wanted == call.name;
}

}  // namespace

void prepare_faults(const Settings& settings) {
  for (size_t i = 0; i < kCallCount; ++i) {
    const CallInfo& call = info(static_cast<Call>(i));
    Slot& slot = slots()[i];
    for (const FailRule& rule : settings.fail) {
      if (means(rule.call, call)) slot.rules.push_back(rule);
    }
    for (const LatencyRule& rule : settings.latency) {
      if (means(rule.call, call)) slot.latency_ns = rule.ns;
    }
  }
}

CUresult planted_fault(Call id) {
  Slot& slot = slots()[static_cast<size_t>(id)];
  if (slot.rules.empty()) return CUDA_SUCCESS;
  const uint64_t use = slot.uses.fetch_add(1, std::memory_order_relaxed) + 1;
  for (const FailRule& rule : slot.rules) {
    if (rule.nth == 0 || rule.nth == use) return rule.code;
  }
  return CUDA_SUCCESS;
}

uint64_t planted_latency_ns(Call id) { return slots()[static_cast<size_t>(id)].latency_ns; }

}  // namespace simcuda
