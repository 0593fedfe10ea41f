// SPDX-License-Identifier: Apache-2.0
#include "base/misfortune.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <string_view>
#include <vector>

#include "exec/context.h"
#include "exec/current.h"
#include "memory/device.h"

namespace simcuda {
namespace {

struct Pressure {
  PressureRule rule;
  bool begun = false;  // a rule from the first call on: before cuInit there is no device
  uint64_t held = 0;
};

// A rule that names a call, and how often that was used.
struct Death {
  explicit Death(const LoseRule& r) : rule(r) {}
  const LoseRule rule;
  std::atomic<uint64_t> uses{0};
};

struct Misfortune {
  std::mutex mutex;
  std::vector<Pressure> pressure;
  std::vector<LoseRule> lose;
  std::deque<Death> deaths;
  std::atomic<uint64_t> calls{0};
};

Misfortune& misfortune() {
  static Misfortune& all = *new Misfortune;
  return all;
}

// As much as is wanted and there.
uint64_t take(Device& device, uint64_t bytes) {
  for (uint64_t wanted = bytes; wanted != 0;) {
    if (device.charge(wanted)) return wanted;
    const uint64_t room = device.total_bytes() - device.used_bytes();
    wanted = room < wanted ? room : 0;
  }
  return 0;
}

void apply(Pressure& pressure, uint64_t call) {
  Device* device = find_device(pressure.rule.device);
  if (device == nullptr) return;
  if (!pressure.begun && call >= pressure.rule.from) {
    pressure.begun = true;
    pressure.held = take(*device, pressure.rule.bytes);
  }
  if (call != pressure.rule.to) return;
  device->refund(pressure.held);
  pressure.held = 0;
}

// Calls that name their device or context, and work whatever the current one is.
bool needs_context(Call id) {
  const std::string_view name = info(id).name;
  return name != "cuInit" && name != "cuCtxCreate" && name != "cuCtxDestroy" &&
         !name.starts_with("cuDevicePrimaryCtx");
}

// The call itself still succeeds, as the launch of a kernel does that dies later.
void let_die(Context& context, Call id) {
  const CallInfo& call = info(id);
  for (Death& death : misfortune().deaths) {
    const LoseRule& rule = death.rule;
    if (context.device().ordinal() != rule.device) continue;
    if (rule.call != call.symbol && rule.call != call.name) continue;
    if (death.uses.fetch_add(1) + 1 == rule.nth) context.dead = rule.code;
  }
}

}  // namespace

void prepare_misfortune(const FaultRules& rules) {
  for (const PressureRule& rule : rules.pressure) misfortune().pressure.push_back({rule});
  for (const LoseRule& rule : rules.lose) {
    if (rule.nth == 0) misfortune().lose.push_back(rule);
    if (rule.nth != 0) misfortune().deaths.emplace_back(rule);
  }
}

CUresult meet_misfortune(Call id) {
  if (!(info(id).traits & kTraced)) return CUDA_SUCCESS;
  Misfortune& all = misfortune();
  const uint64_t call = all.calls.fetch_add(1) + 1;
  if (!all.pressure.empty()) {
    const std::lock_guard lock(all.mutex);
    for (Pressure& pressure : all.pressure) apply(pressure, call);
  }
  Context* context = current_context();
  if (context == nullptr || !needs_context(id)) return CUDA_SUCCESS;
  if (const CUresult code = context->dead; code != CUDA_SUCCESS) return code;
  let_die(*context, id);
  for (const LoseRule& rule : all.lose) {
    if (call > rule.after && context->device().ordinal() == rule.device) return rule.code;
  }
  return CUDA_SUCCESS;
}

}  // namespace simcuda
