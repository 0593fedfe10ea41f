// SPDX-License-Identifier: Apache-2.0
#include "shim/nvtx/own_phase.h"

#include "shim/nvtx/phases.h"
#include "shim/nvtx/thread_ranges.h"
#include "shim/process/names.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

using alloc::Phases;

Phases::Thread* own_phases() {
  return this_thread.ranges == nullptr ? nullptr : &this_thread.ranges->phases;
}

}  // namespace

uint32_t current_phase() { return phases_on() ? phases().current(own_phases()) : 0; }

Phases::Graph current_graph() {
  return phases_on() ? phases().graph(own_phases()) : Phases::Graph{};
}

void phase_allocated(uint64_t bytes) { phases().allocated(own_phases(), bytes); }

void phase_block_allocated(alloc::Memory memory, uint64_t address, uint64_t bytes,
                           uint64_t context) {
  phases().block_allocated(own_phases(), memory, address, bytes, context);
}

void phase_block_not_freed(const alloc::LiveBlocks::Block& block) {
  phases().block_not_freed(own_phases(), block);
}

void marker_begins(const char* name) {
  ThreadRanges* thread = phases_on() ? own_ranges() : nullptr;
  if (thread == nullptr) return;
  const uint32_t number = names().number(name == nullptr ? "" : name);
  phase_begins(thread->phases, Phases::Source::kMarkers, number, 0);
}

void marker_ends() {
  Phases::Thread* thread = phases_on() ? own_phases() : nullptr;
  if (thread != nullptr) marker_phase_ends(*thread);
}

}  // namespace cistern::shim
