// SPDX-License-Identifier: Apache-2.0
#include "shim/nvtx/phases.h"

#include "config/glob.h"
#include "shim/process/log.h"
#include "shim/process/names.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

using alloc::Phases;

constinit Phases the_phases{};

// Whether a name matches is found once for each. Demand-paged: few names take few pages.
enum : uint8_t { kUnknown, kMatches, kDiffers };
constinit std::atomic<uint8_t> matches[alloc::Names::kMostNames + 1]{};

// The automatic phase that begins where one ends is told by that end.
void tell(const char* what, uint32_t run) {
  if (run == 0 || !log_enabled(config::LogLevel::kDebug)) return;
  log(config::LogLevel::kDebug, "phase %u %s: %s", run, what,
      names().text(the_phases.name_of(run)));
}

}  // namespace

void switch_phases_on(bool automatic) {
  if (phases_on()) return;
  if (automatic) the_phases.name_automatic(names().number("(start)"), names().number("(phase)"));
  phases_switched_on.store(true, std::memory_order_relaxed);
}

alloc::Phases& phases() { return the_phases; }

void phase_freed(uint64_t bytes) { the_phases.freed(bytes); }
uint32_t phase_count() { return the_phases.runs(); }
uint32_t phase_name(uint32_t run) { return the_phases.name_of(run); }
uint32_t phase_names() { return the_phases.names(); }
PhaseFigures phase_figures(uint32_t n) { return the_phases.figures(n); }

bool graph_is_open(uint32_t run) { return phases_on() && the_phases.is_open(run); }

void synchronisation_point() { tell("ended", the_phases.synchronised()); }

bool is_phase(uint32_t name) {
  if (!phases_on() || name == 0 || !policy().graph_range.set) return false;
  const uint8_t known = matches[name].load(std::memory_order_relaxed);
  if (known != kUnknown) return known == kMatches;
  const bool found = config::matches_glob(policy().graph_range.value, names().text(name));
  matches[name].store(found ? kMatches : kDiffers, std::memory_order_relaxed);
  return found;
}

void phase_begins(Phases::Thread& thread, Phases::Source source, uint32_t name, uint64_t key) {
  tell("began", the_phases.begin(thread, source, name, key));
}

void range_phase_ends(Phases::Thread& thread, uint64_t key) {
  tell("ended", the_phases.end_range(thread, key));
}

void marker_phase_ends(Phases::Thread& thread) { tell("ended", the_phases.end_marker(thread)); }

void phases_of_thread_end(Phases::Thread& thread) {
  while (const uint32_t run = the_phases.end_any(thread)) tell("ended", run);
}

void reset_phases_after_fork(const Phases::Thread* own) { the_phases.reset_after_fork(own); }

}  // namespace cistern::shim
