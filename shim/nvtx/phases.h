// SPDX-License-Identifier: Apache-2.0
// Phases of this process (allocator/record/phases.h): where the program's markers, its ranges and
// its synchronisation points arrive, and what observers ask. Off until a setting needs them. Any
// thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/record/phases.h"

namespace cistern::shim {

inline constinit std::atomic<bool> phases_switched_on{false};
inline bool phases_on() { return phases_switched_on.load(std::memory_order_relaxed); }

// To be called by the object's constructor, i.e. in Part::at_start. Makes no CUDA call.
void switch_phases_on();

// --- what observers tell and ask; only while phases are on ---

// The calling thread allocated or freed memory that counts as live.
void phase_allocated(uint64_t bytes);
void phase_freed(uint64_t bytes);

// The run of a phase in which the calling thread is; 0: in none. Runs so far are 1 to
// phase_count().
uint32_t current_phase();
uint32_t phase_count();
uint32_t phase_name(uint32_t run);  // a number of names(); 0: no longer known

// Figures of all runs of one name; names so far are 1 to phase_names().
using PhaseFigures = alloc::Phases::Figures;
uint32_t phase_names();
PhaseFigures phase_figures(uint32_t n);

// --- where phases begin and end ---

// In hooks of calls that wait for the device, after one succeeded.
void synchronisation_point();
inline void note_synchronisation_point() {
  if (phases_on()) [[unlikely]]
    synchronisation_point();
}

// cistern_graph_begin and cistern_graph_end of the installed header (cistern.h).
void marker_begins(const char* name);
void marker_ends();

// Whether CISTERN_GRAPH_RANGE matches this name of a range.
bool is_phase(uint32_t name);
// `key` tells the ranges of a thread from each other and is not 0.
void range_phase_begins(alloc::Phases::Thread& thread, uint32_t name, uint64_t key);
void range_phase_ends(alloc::Phases::Thread& thread, uint64_t key);
void phases_of_thread_end(alloc::Phases::Thread& thread);

void reset_phases_after_fork();

}  // namespace cistern::shim
