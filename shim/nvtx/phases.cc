// SPDX-License-Identifier: Apache-2.0
#include "shim/nvtx/phases.h"

#include "config/glob.h"
#include "shim/nvtx/thread_ranges.h"
#include "shim/process/log.h"
#include "shim/process/names.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

using alloc::Phases;

constinit Phases phases{};

// Whether a name matches is found once for each. Demand-paged: few names take few pages.
enum : uint8_t { kUnknown, kMatches, kDiffers };
constinit std::atomic<uint8_t> matches[alloc::Names::kMostNames + 1]{};

Phases::Thread* own_phases() {
  return this_thread.ranges == nullptr ? nullptr : &this_thread.ranges->phases;
}

// The automatic phase that begins where one ends is told by that end.
void tell(const char* what, uint32_t run) {
  if (run == 0 || !log_enabled(config::LogLevel::kDebug)) return;
  log(config::LogLevel::kDebug, "phase %u %s: %s", run, what, names().text(phases.name_of(run)));
}

}  // namespace

void switch_phases_on() {
  if (phases_on()) return;
  phases.name_automatic(names().number("(start)"), names().number("(phase)"));
  phases_switched_on.store(true, std::memory_order_relaxed);
}

void phase_allocated(uint64_t bytes) { phases.allocated(own_phases(), bytes); }
void phase_freed(uint64_t bytes) { phases.freed(bytes); }

uint32_t current_phase() { return phases_on() ? phases.current(own_phases()) : 0; }
uint32_t phase_count() { return phases.runs(); }
uint32_t phase_name(uint32_t run) { return phases.name_of(run); }
uint32_t phase_names() { return phases.names(); }
PhaseFigures phase_figures(uint32_t n) { return phases.figures(n); }

void synchronisation_point() { tell("ended", phases.synchronised()); }

bool is_phase(uint32_t name) {
  if (!phases_on() || name == 0 || !policy().graph_range.set) return false;
  const uint8_t known = matches[name].load(std::memory_order_relaxed);
  if (known != kUnknown) return known == kMatches;
  const bool found = config::matches_glob(policy().graph_range.value, names().text(name));
  matches[name].store(found ? kMatches : kDiffers, std::memory_order_relaxed);
  return found;
}

void range_phase_begins(Phases::Thread& thread, uint32_t name, uint64_t key) {
  tell("began", phases.begin(thread, Phases::Source::kRanges, name, key));
}

void range_phase_ends(Phases::Thread& thread, uint64_t key) {
  tell("ended", phases.end_range(thread, key));
}

void marker_begins(const char* name) {
  if (!phases_on()) return;
  ThreadRanges* thread = own_ranges();
  if (thread == nullptr) return;
  const uint32_t number = names().number(name == nullptr ? "" : name);
  tell("began", phases.begin(thread->phases, Phases::Source::kMarkers, number, 0));
}

void marker_ends() {
  if (Phases::Thread* thread = phases_on() ? own_phases() : nullptr) {
    tell("ended", phases.end_marker(*thread));
  }
}

void phases_of_thread_end(Phases::Thread& thread) { phases.thread_ended(thread); }

void reset_phases_after_fork() { phases.reset_after_fork(); }

}  // namespace cistern::shim
