// SPDX-License-Identifier: Apache-2.0
// Work of the device that the host can see without asking the driver: it uses memory of the host,
// calls a function of the host, waits for one, or shares what it writes with others. A free waits
// for such work, since the program may look at its results right after the free (visible_work.h).
// All other work can only be looked at by a call, which Cistern sees (debts.h).
//
// A copy or a fill is such work if one of its addresses lies in pinned, registered or managed
// memory, and a kernel if one of its parameters does, or holds such an address. If a device reaches
// pageable memory (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS), any address outside the pools
// counts.
//
// After one of these events, every kernel and copy is such work until the process ends:
//
//   * memory that is imported, or mapped for a graphics interface; managed variables
//   * memory or an event that is shared with another process or another device
//   * a small copy to the device that carries an address of host memory
//   * host memory that has another address on the device
//   * a device that reaches memory of the GPU past CUDA (pooled/free_wait.cc)
//
// Any thread; the questions take no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

// Everything is visible from now on. Work that is not finished may write what is shared now. `why`
// is for people, and has to last; only the first one counts.
void everything_becomes_visible(const char* why =
                                    "memory or work is shared with the host, another process, "
                                    "device or interface");
// nullptr: it is not.
const char* why_everything_is_visible();
extern constinit std::atomic<bool> everything_is_visible;

// Host memory that work can reach. Nothing is forgotten when it is freed: its addresses come back,
// and a wait too many does no harm.
void host_memory_appeared(uint64_t address, uint64_t bytes);
// All of it: a device reaches pageable memory.
void all_host_memory_appears();
extern constinit std::atomic<bool> any_host_memory;
bool lies_in_host_memory(uint64_t address);

// Whether such work can be visible at all: one load each.
inline bool may_be_visible() {
  return any_host_memory.load(std::memory_order_relaxed) ||
         everything_is_visible.load(std::memory_order_relaxed);
}

// A kernel with these parameters, of a launch; `extra` as cuLaunchKernel has it. Both may be null.
bool kernel_is_visible(CUfunction kernel, void* const* parameters, void* const* extra);
// Code was unloaded: the handle of a function may mean another one.
void functions_changed();
void reset_visible_after_fork();

// A copy of so many bytes from the host, whose memory can be read, to the device. Of a larger one
// nothing is looked at.
inline constexpr size_t kSmallCopy = 4096;
void look_at_copied(const void* source, size_t bytes);

}  // namespace cistern::shim
