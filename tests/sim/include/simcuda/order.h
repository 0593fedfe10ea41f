// SPDX-License-Identifier: Apache-2.0
//
// What the order oracle of the simulated driver is told (driver/watch/oracle.h): which calls are
// the program's, of all that reach the driver through a pool. For a library that sits between
// program and pool (preload/programs/fixtures/tell_order.cc). Found with dlsym in the libcuda the
// process uses. Any thread; without SIMCUDA_ORDER they do nothing.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The calling thread begins a call of this exact name, and is back from it, with this code.
// `freed`: what a free is given; else 0. To be told of each call that does nothing but wait, and
// each free.
void simcuda_program_calls(const char* symbol, uint64_t freed);
// The same of a call that hands over work: that work is before what another thread begins to free
// only once the call is back. With one thread there is no need to tell.
void simcuda_program_submits(const char* symbol);
void simcuda_program_returns(int code);

// The program has made this event: all others are the pool's.
void simcuda_program_makes(void* event);

// It was given this memory, pinned or of the current context, and will free it by a call that is
// told.
void simcuda_program_gets(uint64_t address, uint64_t bytes, int pinned);

// To be told inside the call: it will be told that this is not over; the other one is null.
void simcuda_program_sees_unfinished(void* event, void* stream);

// The calling thread lets others know how far it has come, and learns it of them: whoever hears
// comes after whoever told, of the same thing.
void simcuda_program_tells(const void* of);
void simcuda_program_hears(const void* of);

#ifdef __cplusplus
}
#endif
