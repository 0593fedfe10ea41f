// SPDX-License-Identifier: Apache-2.0
//
// Memory CUDA knows about outside the devices' own ranges: pinned, registered and managed host
// memory, mappings of physical handles, memory of other processes. An ordered index from address
// to Allocation. Any thread.
#pragma once

#include <optional>
#include <vector>

#include "memory/allocation.h"

namespace simcuda {

// False if the stretch overlaps one already known.
bool add_range(const Allocation& range);

// The range that starts here and is of this kind, taken out of the index.
std::optional<Allocation> remove_range(CUdeviceptr base, MemoryKind kind);

// The mapping that starts here can be accessed by these devices from now on.
void set_reached_by(CUdeviceptr base, uint64_t devices);

// The range that holds this address.
std::optional<Allocation> find_range(CUdeviceptr address);

// All ranges a context owns, taken out of the index.
std::vector<Allocation> remove_ranges_of(const Context& context);

}  // namespace simcuda
