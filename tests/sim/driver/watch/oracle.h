// SPDX-License-Identifier: Apache-2.0
//
// The order oracle: what the driver alone would order, beside what is ordered here. A pool above
// the driver may put off what a free waits for, and add waits of its own that keep the order. The
// oracle knows which calls are the program's and builds from them the order that the program was
// promised: streams, the legacy stream, events, what a thread waited for, and a free, whose return
// comes after all work that its context was given before the call. Then it compares
// (SIMCUDA_ORDER):
//
//   lost   Two touches of a byte that the promise orders are not ordered. Or work is under way
//          that is over by the promise, and a free has returned or an event was asked.
//   added  A wait of the pool's, on the device or the host, holds up what the promise does not
//          order behind that work.
//   meet   Kernels end only once a kernel that the promise does not order with them has begun, or
//          the program waits for them: a program hangs where such an order was added.
//
// A program's own calls are told by who sits above the pool (simcuda/order.h). Memory that a thread
// gets comes after the free of what was there, whoever freed it. What another thread is handing
// over while a free begins may be on either side of it.
//
// The promise of work travels in its marker; that of a thread is the thread's own. Whatever else
// the oracle knows is guarded by exec_mutex(). It orders nothing, but for `meet`, and answers no
// call: a finding is reported, and the program goes on. Off (the default), each hook is one load.
// Any thread.
#pragma once

#include <atomic>
#include <string_view>

#include "exec/work.h"
#include "table/calls.h"

namespace simcuda {

class Context;
struct Event;
struct Stream;

inline constinit std::atomic<bool> g_judging{false};
inline bool judging() { return g_judging.load(std::memory_order_relaxed); }

// `meet`: kernels wait for each other.
void start_judging(bool meet);

// Caller holds exec_mutex(), as below where nothing else is said. The promise of work that begins
// its life; its marker has its step.
void promise(Stream& stream, Work& work);

// A pool's own event will hold back what comes next in the stream, which is promised to come after
// `known`.
void judge_stream_wait(const Order& event, const VectorClock& known);

// This thread is about to wait in `call`, the program's or the pool's.
void judge_host_wait(Call call, const Order& order);

// The program asked about this work. It may do so until it is over.
void judge_question(const VectorClock& promised, bool passed);

// An event was asked. Of the pool's own: whether it is asked in a loop.
void judge_query(const Event& event, bool passed);

// The calling thread has seen that all of this is over, in a call of the program's.
void thread_learns(const VectorClock& promised);

// A context has ended, and the program's memory in it. Caller holds exec_mutex().
void forget_memory_of(const Context& context);

// A call of the thread was answered that memory is out. Caller need not hold exec_mutex().
void thread_is_refused();

// The work begins and, if it is a kernel that is to meet another one, waits. Caller does not hold
// exec_mutex().
void meet_others(const Work& work);

// Caller does not hold exec_mutex(), here and below: simcuda/order.h.
void program_calls(std::string_view symbol, CUdeviceptr freed);
void program_submits(std::string_view symbol);
void program_returns(CUresult code);
void program_gets(CUdeviceptr address, size_t bytes, bool pinned);
void program_finds_unfinished(const Order& asked);
void program_tells(const void* of);
void program_hears(const void* of);

}  // namespace simcuda
