// SPDX-License-Identifier: Apache-2.0
//
// Executes ordered work: by one thread per stream that has some, or one piece at a time in an order
// drawn from a seed (SIMCUDA_SCHEDULE, exec/scheduler.h). exec_mutex() guards everything about
// order: streams, queues, events, captures. It is never held while work runs.
#pragma once

#include <condition_variable>
#include <mutex>

#include "exec/stream.h"
#include "exec/work.h"

namespace simcuda {

std::mutex& exec_mutex();

// Signalled, with exec_mutex(), when a marker is reached.
std::condition_variable& progress();

// Queues work. Caller holds exec_mutex().
void queue_work(const StreamRef& stream, Work work);

// Waits until the stream has room for more (SIMCUDA_QUEUE). Caller holds the lock.
void await_room(const Stream& stream, std::unique_lock<std::mutex>& lock);

// Work the calling thread will run itself: only where its `after` has been reached. begin_here
// announces it (caller holds exec_mutex()), run_here runs it (caller does not).
void begin_here();
void run_here(Work& work);

// Runs work whose `after` is reached. Caller holds the lock, which is open meanwhile.
void run_work(Work work, std::unique_lock<std::mutex>& lock);

// Marks work without anything to run as reached. Caller holds exec_mutex().
void reach_now(Marker& marker);

// Blocks the calling thread until all is reached; the host knows it then. Caller does not hold
// exec_mutex().
void wait_for(Order order);
void wait_for(const MarkerRef& marker);
// The same as a question. Caller holds exec_mutex().
bool has_passed(Order& order);

// Called where the host asks how far work is: under a seed some of it may run. Caller does not
// hold exec_mutex().
void host_asks();

// No work is waiting or running anywhere: a cheap hint to skip waiting altogether.
bool everything_done();

}  // namespace simcuda
