// SPDX-License-Identifier: Apache-2.0
#include "shim/record/watched.h"

#include "shim/nvtx/phases.h"
#include "shim/nvtx/ranges.h"
#include "shim/record/recording.h"
#include "shim/sites/sites.h"

namespace cistern::shim {

void open_watch(const config::Policy& policy) {
  unsigned wanted = 0;
  if (policy.record.set) wanted |= kWatchRecord;
  if (policy.pool && policy.sites.set) wanted |= kWatchTallies;  // the report is about pools
  if (policy.pool && policy.print_log) wanted |= kWatchReuse;
  if (policy.pool && policy.treats_sites_differently()) wanted |= kWatchOrigin;
  const bool ranges = policy.graph_range.set && (policy.pool || policy.record.set);
  if (ranges || (policy.pool && policy.graph_arenas())) wanted |= kWatchPhases;
  watched_for.store(wanted, std::memory_order_relaxed);
}

void start_watch(const config::Policy& policy) {
  const bool stacks = watching() && policy.sites == config::Sites::kStacks;
  if (stacks || watching(kWatchReuse | kWatchOrigin)) {
    switch_sites_on();
    load_unwinder();
  }
  if (watching()) switch_ranges_on();
  if (watching(kWatchRecord | kWatchTallies | kWatchPhases)) {
    switch_phases_on(/*automatic=*/watching(kWatchTallies | kWatchPhases));
  } else if (policy.pool && policy.plan.value.mode == config::PlanMode::kAuto) {
    switch_phases_on(/*automatic=*/false);  // by markers alone
  }
}

void stop_watching() {
  watched_for.store(0, std::memory_order_relaxed);
  abandon_recording();
}

}  // namespace cistern::shim
