// SPDX-License-Identifier: Apache-2.0
//
// Memory that is no allocation of a device: pinned, registered and managed host memory, mappings of
// physical handles, memory of other processes, and what memory pools hand out of their own. An
// ordered index from address to Allocation. Any thread.
#pragma once

#include <optional>
#include <vector>

#include "memory/allocation.h"
#include "watch/watcher.h"

namespace simcuda {

// False if the stretch overlaps one already known.
bool add_range(const Allocation& range, Past past = Past::kForgotten);

// The range that starts here and is of this kind, taken out of the index.
std::optional<Allocation> remove_range(CUdeviceptr base, MemoryKind kind);

// The same with an id that may have changed meanwhile; the watcher is the caller's to tell.
std::optional<Allocation> take_range(CUdeviceptr base, MemoryKind kind, uint64_t id);

// A stream will end the range that starts here, or did not take it; false if it is to end already.
bool set_range_ending(CUdeviceptr base, bool ending);

// The mapping that starts here can be accessed by these devices from now on.
void set_reached_by(CUdeviceptr base, uint64_t devices);

// The range that holds this address.
std::optional<Allocation> find_range(CUdeviceptr address);

// All ranges a context owns, taken out of the index. Memory of pools is the device's, and stays.
std::vector<Allocation> remove_ranges_of(const Context& context);

}  // namespace simcuda
