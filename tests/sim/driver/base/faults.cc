// SPDX-License-Identifier: Apache-2.0
#include "base/faults.h"

#include <array>
#include <atomic>
#include <random>
#include <string_view>
#include <vector>

namespace simcuda {
namespace {

struct Slot {
  std::vector<FailRule> rules;
  std::atomic<uint64_t> uses{0};
  uint64_t latency_ns = 0, latency_after_ns = 0;
  uint64_t taken_bytes = 0;
};

std::array<Slot, kCallCount>& slots() {
  static auto& all = *new std::array<Slot, kCallCount>;
  return all;
}

bool means(std::string_view wanted, const CallInfo& call) {
  return wanted == call.symbol || wanted == call.name;
}

// Depends on the seed and the number of the use alone, so that threads do not matter.
bool drawn(const FailRule& rule, uint64_t use) {
  std::seed_seq mixed{rule.seed, rule.seed >> 32, use, use >> 32};
  std::minstd_rand random(mixed);
  random.discard(1);
  return std::generate_canonical<double, 32>(random) < rule.probability;
}

bool applies(const FailRule& rule, uint64_t use) {
  if (rule.probability > 0) return drawn(rule, use);
  return rule.nth == 0 || rule.nth == use;
}

}  // namespace

void prepare_faults(const FaultRules& rules) {
  for (size_t i = 0; i < kCallCount; ++i) {
    const CallInfo& call = info(static_cast<Call>(i));
    Slot& slot = slots()[i];
    for (const FailRule& rule : rules.fail) {
      if (means(rule.call, call)) slot.rules.push_back(rule);
    }
    for (const LatencyRule& rule : rules.latency) {
      if (!means(rule.call, call)) continue;
      (rule.after_work ? slot.latency_after_ns : slot.latency_ns) = rule.ns;
    }
    for (const TakeRule& rule : rules.takes) {
      if (means(rule.call, call)) slot.taken_bytes = rule.bytes;
    }
  }
}

Fault planted_fault(Call id) {
  Slot& slot = slots()[static_cast<size_t>(id)];
  if (slot.rules.empty()) return {};
  const uint64_t use = slot.uses.fetch_add(1, std::memory_order_relaxed) + 1;
  for (const FailRule& rule : slot.rules) {
    if (applies(rule, use)) return {rule.code, rule.after_work};
  }
  return {};
}

uint64_t planted_latency_ns(Call id) { return slots()[static_cast<size_t>(id)].latency_ns; }

uint64_t planted_latency_after_ns(Call id) {
  return slots()[static_cast<size_t>(id)].latency_after_ns;
}

uint64_t planted_taking(Call id) { return slots()[static_cast<size_t>(id)].taken_bytes; }

}  // namespace simcuda
