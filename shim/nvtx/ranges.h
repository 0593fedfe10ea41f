// SPDX-License-Identifier: Apache-2.0
// The ranges in which a thread is: NVTX's, pushed or started by the program, one inside the other.
// A range here is a way from the outermost to the innermost name, as one number: the same names
// nested in the same order are the same range, whenever and on whichever thread. Any thread.
#pragma once

#include <cstdint>

#include "allocator/record/phases.h"

namespace cistern::shim {

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

// The phase in which the calling thread is. Any thread.

// The run of a phase; 0: in none, or phases are off. Runs so far are 1 to phase_count().
uint32_t current_phase();

// The graph in which the calling thread is; run 0: in none, or phases are off.
alloc::Phases::Graph current_graph();

// The calling thread allocated memory that counts as live. Only while phases are on.
void phase_allocated(uint64_t bytes);
// The same of a block whose size phases themselves remember (Phases::block_allocated()).
void phase_block_allocated(alloc::Memory memory, uint64_t address, uint64_t bytes,
                           uint64_t context);
void phase_block_not_freed(const alloc::LiveBlocks::Block& block);

}  // namespace cistern::shim
