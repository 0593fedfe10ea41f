// SPDX-License-Identifier: Apache-2.0
//
// The watcher: proves from the order edges alone, never from what happened to run when, that work
// touches memory only when it may. The driver tells it what it orders and which memory begins and
// ends; clocks travel in markers (exec/work.h). The host counts as one lane: what any thread has
// waited for, all threads know, as they may have told each other in ways nobody sees here.
//
// State is guarded by exec_mutex(). Off (the default), each hook is one load.
#pragma once

#include <atomic>

#include "exec/work.h"
#include "memory/allocation.h"

namespace simcuda {

struct Settings;
struct Stream;

inline constinit std::atomic<bool> g_watching{false};
inline bool watching() { return g_watching.load(std::memory_order_relaxed); }

// Clocks are kept while races are looked for, and once a memory pool has to know what its streams
// come after.
inline constinit std::atomic<bool> g_keeping_clocks{false};
inline bool keeping_clocks() { return g_keeping_clocks.load(std::memory_order_relaxed); }
inline void keep_clocks() { g_keeping_clocks.store(true, std::memory_order_relaxed); }

// What happened to the bytes before they became the program's: nothing that matters, or what the
// new owner must come after.
enum class Past : uint8_t { kForgotten, kKept };

// Once, before the first call is answered. False where the report file cannot be written.
bool start_watching(const Settings& settings);

// The call this thread is in, for reports. Set by the gate while anything is watched.
void set_current_call(Call call);
Call current_call();

// Caller holds exec_mutex(). Gives the work its place in time and checks what it touches. False:
// it touches memory it may not, and its body must not run.
bool watch_submit(Stream& stream, Work& work);
// Caller holds exec_mutex(). The host has waited for what this clock covers.
void host_learns(const VectorClock& clock);
// Caller does not hold exec_mutex(). What the host has waited for.
VectorClock host_clock();

// Caller does not hold exec_mutex(), here and below. Memory becomes the program's.
void watch_begun(const Allocation& allocation, Past past = Past::kForgotten);
// A memory pool has it from the device, which gives away nothing that is still in use.
void watch_pool_got(CUdeviceptr address, uint64_t bytes);
// The host frees it, now: a touch of every byte, which must be ordered after all others.
void watch_freed(const Allocation& allocation);
// It ends with its context or on its stream.
void watch_ended(const Allocation& allocation);
// The program tried to free what it may not.
void watch_free_refused(CUdeviceptr address);

// Physical memory comes and goes; its bytes are known by `key` wherever they are mapped.
void watch_physical_begun(uint64_t key, uint64_t bytes);
void watch_physical_ended(uint64_t key);

// Addresses are reserved and given back; only leaks are looked for.
void watch_reserved(CUdeviceptr address, uint64_t bytes);
void watch_unreserved(CUdeviceptr address);

// Blocks a pool hands out inside one of its allocations (simcuda/watch.h).
void watch_block_begun(CUdeviceptr address, uint64_t bytes);
void watch_block_ended(CUdeviceptr address);

}  // namespace simcuda
