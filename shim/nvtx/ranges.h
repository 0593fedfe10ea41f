// SPDX-License-Identifier: Apache-2.0
// The ranges and phases in which each thread is, and the queries of observers.
//
// A range is what NVTX pushed or started (injection.cc), one inside the other. As one number it is
// the way from the outermost to the innermost name: the same names nested in the same order are the
// same range, whenever and on whichever thread. A phase is a run of a graph
// (allocator/record/phases.h). It begins and ends with ranges, markers and synchronisation points.
//
// Both are off until a setting needs them. A thread's ranges are its own mapping, made when it
// enters the first and returned when it ends. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/record/phases.h"

namespace cistern::shim {

// --- ranges ---

// From now on NVTX reports to Cistern, as far as the program has not used NVTX yet. To be called by
// the object's constructor, i.e. in Part::at_start. Makes no CUDA call.
void switch_ranges_on();
bool ranges_on();

// What the calling thread is in; 0: in none. A started range counts for the thread that started it.
uint32_t current_range();

// The ranges known so far are 1 to range_count(). Those around a range have lower numbers.
uint32_t range_count();

struct Range {
  uint32_t parent;  // the range around it; 0: none
  uint32_t name;  // its own name, "domain/message" or "message" in the default domain, as a number
                  // of names()
};

// `range` is from 1 to range_count().
Range range_of(uint32_t range);

// NVTX's calls. Names are numbers of names(); a domain is the number of its name, 0 the default
// one. The first two answer the level as NVTX does: from 0 on, or RangeStack::kNothingPushed or
// kNotTracked.
int push_range(uint32_t domain, uint32_t name);
int pop_range(uint32_t domain);

// `start` identifies the range in the process and is not 0; any thread may end it.
void start_range(uint32_t domain, uint32_t name, uint64_t start);
void end_range(uint64_t start);

// The domain is no more: what is open in it ends, on all threads.
void end_domain(uint32_t domain);

void reset_ranges_after_fork();

// --- phases ---

inline constinit std::atomic<bool> phases_switched_on{false};
inline bool phases_on() { return phases_switched_on.load(std::memory_order_relaxed); }

// To be called by the object's constructor, i.e. in Part::at_start. Makes no CUDA call.
// `automatic`: phase_allocated() and phase_freed() will be called, so that phases without a marker
// or a range can be found.
void switch_phases_on(bool automatic);

alloc::Phases& phases();

// The run of a phase in which the calling thread is; 0: in none, or phases are off. Runs so far are
// 1 to phase_count().
uint32_t current_phase();
uint32_t phase_count();
uint32_t phase_name(uint32_t run);  // a number of names(); 0: no longer known

// The graph in which the calling thread is; run 0: in none, or phases are off.
alloc::Phases::Graph current_graph();
// Whether a run of a graph has not ended, whoever asks.
bool graph_is_open(uint32_t run);

// Figures of all runs of one name; names so far are 1 to phase_names().
using PhaseFigures = alloc::Phases::Figures;
uint32_t phase_names();
PhaseFigures phase_figures(uint32_t n);

// In hooks of calls that wait for the device, after one succeeded.
void synchronisation_point();
inline void note_synchronisation_point() {
  if (phases_on()) [[unlikely]]
    synchronisation_point();
}

// What observers tell, only while phases are on. The calling thread allocated memory that counts as
// live, or memory that was counted so was freed.
void phase_allocated(uint64_t bytes);
void phase_freed(uint64_t bytes);
// The same of a block whose size phases themselves remember (Phases::block_allocated()).
void phase_block_allocated(alloc::Memory memory, uint64_t address, uint64_t bytes,
                           uint64_t context);
void phase_block_not_freed(const alloc::LiveBlocks::Block& block);

}  // namespace cistern::shim
