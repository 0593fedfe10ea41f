// SPDX-License-Identifier: Apache-2.0
// Work of the device that the host can see without asking the driver: it uses memory of the host,
// calls a function of the host, waits for one, or shares what it writes with others. A free waits
// for such work, since the program may look at its results right after the free. The program can
// see the results of all other work only by a call, which Cistern sees (work.h).
//
// A copy or a fill is such work if one of its addresses lies in pinned, registered or managed
// memory, and a kernel if one of its parameters does, or holds such an address. If a device reaches
// pageable memory (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS), any address outside the pools
// counts.
//
// After one of the following, every kernel and copy is such work until the process ends:
//
//   * memory that is imported, or mapped for a graphics interface; managed variables
//   * memory or an event that is shared with another process or another device
//   * a small copy to the device that carries an address of host memory
//   * host memory that has another address on the device
//   * a device that reaches memory of the GPU past CUDA (pooled/free_wait.cc)
//
// An event is recorded behind such work on its stream, and the free waits for that event alone. So
// the free's wait ends with the last such work, and the device keeps the order of other work. Only
// the work of one thread is followed, and only where frees may leave debts. Work that cannot be
// followed, because no event can be recorded behind it, counts as visible in the state of its
// context (work.h), and the free waits for all of it.
//
// Any thread; the questions take no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// From now on all work is visible, also unfinished work, which may write what is shared now. `why`
// is for people, and must never be freed; only the first one is kept.
void everything_becomes_visible(const char* why =
                                    "memory or work is shared with the host, another process, "
                                    "device or interface");
// nullptr: not all work is visible.
const char* why_everything_is_visible();
extern constinit std::atomic<bool> everything_is_visible;

// Host memory that work can reach. It is not forgotten when it is freed: its addresses may be
// reused, and an unnecessary wait does no harm.
void host_memory_appeared(uint64_t address, uint64_t bytes);
// The same for all host memory: a device reaches pageable memory.
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
// Code was unloaded: handles of functions may be reused.
void functions_changed();
void reset_visible_after_fork();

// To be called for a copy from readable host memory to the device: looks for addresses of host
// memory in the copied bytes. Does nothing for copies larger than kSmallCopy.
inline constexpr size_t kSmallCopy = 4096;
void look_at_copied(const void* source, size_t bytes);

// The calling thread has just handed over such work on this stream (its name without a suffix) of
// its current context. False: no event could be recorded behind it.
bool follow_visible_work(CUstream stream);

// Whether there may be something to wait for in the context.
bool any_visible_work(const Context& context);

// To be called if a stream waits for an event, or gets memory of one of the driver's pools. Whether
// that may wait for visible work of another context or of another thread. If so, the wait itself
// counts as visible work: a free in the stream's context must wait for it.
bool may_await_visible_work(CUstream stream);

// Waits without a limit for the visible work that was followed in the context.
void await_visible_work(Context& context);

// Before a stream ends.
void visible_work_leaves(CUstream stream);

// The context has ended, and its events with it.
void visible_work_gone(CUcontext handle);
void reset_visible_work_after_fork();

}  // namespace cistern::shim
