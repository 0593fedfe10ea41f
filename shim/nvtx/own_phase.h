// SPDX-License-Identifier: Apache-2.0
// The phase in which the calling thread is. Any thread.
#pragma once

#include <cstdint>

#include "allocator/record/phases.h"

namespace cistern::shim {

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

// cistern_graph_begin and cistern_graph_end of the installed header (cistern.h).
void marker_begins(const char* name);
void marker_ends();

}  // namespace cistern::shim
