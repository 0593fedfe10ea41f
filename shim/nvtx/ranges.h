// SPDX-License-Identifier: Apache-2.0
// The current ranges and phases of each thread, for reports and recordings.
//
// The program pushes or starts NVTX ranges (injection.cc); they nest. A range's number stands for
// the whole path from the outermost to the innermost name: the same names nested in the same order
// have the same number, on every thread. A phase is a run of a graph (allocator/record/phases.h).
// Ranges, markers (cistern.h) and synchronisation points begin and end phases.
//
// Both are off until a setting needs them. Each thread keeps its ranges in a mapping of its own,
// from its first range until the thread ends. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/record/phases.h"

namespace cistern::shim {

// --- ranges ---

// From now on NVTX calls report to Cistern, unless the program has used NVTX before. To be called
// by the object's constructor, i.e. in Part::at_start. Makes no CUDA call.
void switch_ranges_on();
bool ranges_on();

// The calling thread's range; 0: none. A started range counts for the thread that started it.
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

// What NVTX calls. `name` is a number of names(). `domain` is the number of the domain's name; 0 is
// the default domain. The first two return the range's level as NVTX does, from 0 on. Without a
// pushed range, pop_range() returns RangeStack::kNothingPushed. If there is no memory, or no room
// for another domain, push_range() returns kNotTracked.
int push_range(uint32_t domain, uint32_t name);
int pop_range(uint32_t domain);

// `start` identifies the range in the process and is not 0; any thread may end it.
void start_range(uint32_t domain, uint32_t name, uint64_t start);
void end_range(uint64_t start);

// The program destroyed the domain: all its open ranges end, on all threads.
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

// The calling thread's phase, by the number of its run; 0: none, or phases are off. Runs so far are
// 1 to phase_count().
uint32_t current_phase();
uint32_t phase_count();
uint32_t phase_name(uint32_t run);  // a number of names(); 0: no longer known

// The calling thread's graph; its run is 0 if there is none, or if phases are off.
alloc::Phases::Graph current_graph();
// Whether this run of a graph has not ended yet, on whichever thread it runs.
bool graph_is_open(uint32_t run);

// The figures of all runs with one name; names so far are 1 to phase_names().
using PhaseFigures = alloc::Phases::Figures;
uint32_t phase_names();
PhaseFigures phase_figures(uint32_t n);

// To be called by the hooks of calls that wait for the device, after such a call succeeded.
void synchronisation_point();
inline void note_synchronisation_point() {
  if (phases_on()) [[unlikely]]
    synchronisation_point();
}

// To be called only while phases are on: the calling thread allocated memory that counts as live,
// or freed such memory.
void phase_allocated(uint64_t bytes);
void phase_freed(uint64_t bytes);
// The same for a block whose size the phases remember (Phases::block_allocated()). The second: the
// free of this block failed.
void phase_block_allocated(alloc::Memory memory, uint64_t address, uint64_t bytes,
                           uint64_t context);
void phase_block_not_freed(const alloc::LiveBlocks::Block& block);

}  // namespace cistern::shim
