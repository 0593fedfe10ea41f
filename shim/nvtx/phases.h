// SPDX-License-Identifier: Apache-2.0
// Phases of this process (allocator/record/phases.h): where ranges, markers and synchronisation
// points arrive, and the queries of observers. Off until a setting needs them. The phase of the
// calling thread: ranges.h. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/record/phases.h"

namespace cistern::shim {

inline constinit std::atomic<bool> phases_switched_on{false};
inline bool phases_on() { return phases_switched_on.load(std::memory_order_relaxed); }

// To be called by the object's constructor, i.e. in Part::at_start. Makes no CUDA call.
// `automatic`: live bytes will be told by phase_allocated() and phase_freed(), so that phases
// without a marker or a range can be found.
void switch_phases_on(bool automatic);

alloc::Phases& phases();

// --- what observers tell and ask; only while phases are on ---

void phase_freed(uint64_t bytes);  // of what was told to phase_allocated()

uint32_t phase_count();             // runs so far are 1 to this
uint32_t phase_name(uint32_t run);  // a number of names(); 0: no longer known

// Figures of all runs of one name; names so far are 1 to phase_names().
using PhaseFigures = alloc::Phases::Figures;
uint32_t phase_names();
PhaseFigures phase_figures(uint32_t n);

// Whether a run of a graph has not ended, whoever asks.
bool graph_is_open(uint32_t run);

// --- where phases begin and end ---

// In hooks of calls that wait for the device, after one succeeded.
void synchronisation_point();
inline void note_synchronisation_point() {
  if (phases_on()) [[unlikely]]
    synchronisation_point();
}

// Whether CISTERN_GRAPH_RANGE matches this name of a range.
bool is_phase(uint32_t name);

// What a thread began or ended; `key` is as in Phases::begin().
void phase_begins(alloc::Phases::Thread& thread, alloc::Phases::Source source, uint32_t name,
                  uint64_t key);
void range_phase_ends(alloc::Phases::Thread& thread, uint64_t key);
void marker_phase_ends(alloc::Phases::Thread& thread);
void phases_of_thread_end(alloc::Phases::Thread& thread);

// `own`: of the thread that is left; null: it has none.
void reset_phases_after_fork(const alloc::Phases::Thread* own);

}  // namespace cistern::shim
