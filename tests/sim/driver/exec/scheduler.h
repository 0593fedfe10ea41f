// SPDX-License-Identifier: Apache-2.0
//
// SIMCUDA_SCHEDULE=seed:N: work runs one piece at a time, drawn by the seed from all streams' first
// pieces whose order is satisfied, by the thread that waits or asks. In between nothing runs, so
// that work given earlier is still pending when a pool or program acts on it; a wait may run just
// what it needs, or anything. With one host thread a seed gives one execution, always the same.
//
// A thread of its own takes over when the host says nothing for a while (it may wait for a callback
// on a variable of its own). Everything here is under exec_mutex().
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "exec/stream.h"

namespace simcuda {

// Once, before the first work.
void start_scheduler(uint64_t seed);

// A seed was given.
bool scheduled();

// Work has been queued on this stream.
void schedule(const StreamRef& stream);

// Runs pieces until all of these are reached. The lock is open while a piece runs.
void run_until(const std::vector<MarkerRef>& markers, std::unique_lock<std::mutex>& lock);

// Runs a few pieces, or none.
void run_some(std::unique_lock<std::mutex>& lock);

}  // namespace simcuda
