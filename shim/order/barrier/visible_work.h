// SPDX-License-Identifier: Apache-2.0
// Work of the device that the host can see without asking the driver: it uses memory of the host,
// calls a function of the host, waits for one, or shares what it writes with others. A free waits
// for such work, since the program may look at its results right after the free. All other work can
// only be looked at by a call, which Cistern sees (debts.h). What is such work: host_visible.cc.
// How a free waits for it: visible_work.cc.
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

// The calling thread has just handed over such work on this stream (its name without a suffix) of
// its current context. False: no event could be recorded behind it.
bool follow_visible_work(CUstream stream);

// Whether there may be something to wait for in the context.
bool any_visible_work(const Context& context);

// Whether a stream that waits for an event, or is given memory of a pool of the driver's, may wait
// for such work of another context than its own, or for work of another thread there, as far as is
// known. If so the wait is such work, too: a free in the stream's context comes behind it.
bool may_await_visible_work(CUstream stream);

// Waits for what was followed in the context, as long as that takes.
void await_visible_work(Context& context);

// Before a stream ends.
void visible_work_leaves(CUstream stream);

// The context has ended, and its events with it.
void visible_work_gone(CUcontext handle);
void reset_visible_work_after_fork();

}  // namespace cistern::shim
