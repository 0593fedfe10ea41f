// SPDX-License-Identifier: Apache-2.0
//
// How another process's block sits in this one: mapped from the start of the page it begins in.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include "memory/allocation.h"

namespace simcuda {

// Bytes between the start of the page and the block.
inline size_t import_lead(uint64_t place) {
  return place % static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

inline void unmap_import(const Allocation& range) {
  const size_t lead = import_lead(range.base);
  munmap(reinterpret_cast<void*>(range.base - lead), lead + range.bytes);
}

}  // namespace simcuda
