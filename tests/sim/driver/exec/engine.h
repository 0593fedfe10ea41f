// SPDX-License-Identifier: Apache-2.0
//
// Executes ordered work: one thread per stream that has work, started when work arrives and gone
// after a while without any. exec_mutex() guards everything about order: streams, queues, events,
// captures. It is never held while work runs.
#pragma once

#include <mutex>

#include "exec/stream.h"
#include "exec/work.h"

namespace simcuda {

std::mutex& exec_mutex();

// Queues work whose `after` is complete. Caller holds exec_mutex().
void queue_work(const StreamRef& stream, Work work);

// Work the calling thread will run itself: only where its `after` has been reached. begin_here
// announces it (caller holds exec_mutex()), run_here runs it (caller does not).
void begin_here();
void run_here(Work& work);

// Marks work without anything to run as reached. Caller holds exec_mutex().
void reach_now(Marker& marker);

// Blocks the calling thread until all are reached. Caller does not hold exec_mutex().
void wait_for(const Markers& markers);

// No work is waiting or running anywhere: a cheap hint to skip waiting altogether.
bool everything_done();

}  // namespace simcuda
