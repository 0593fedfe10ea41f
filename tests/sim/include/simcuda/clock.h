// SPDX-License-Identifier: Apache-2.0
//
// A clock that a test can stop and move: libtestclock.so, preloaded before Cistern's object. The
// object, and the simulated devices, then take their time from it. At first it runs like the
// system's. A program finds the functions that begin with `test_clock` by dlsym; any thread.
//
// While the clock stands, nothing becomes due, however long the machine takes.
//   * A thread of Cistern's own that sleeps or waits for a time goes on when the clock is moved
//     there, or when another thread wakes it. It never moves the clock.
//   * Work that takes time on a simulated device ends when the clock is moved there.
//   * A thread of the program that sleeps or waits for a time inside Cistern really does so, and
//     moves the clock as it waits. So a limited wait ends also where nobody else moves the clock.
//   * A driver call that takes time (SIMCUDA_LATENCY) moves the clock by it at once, if a thread of
//     the program calls; one of Cistern's own waits in the call until the clock is moved.
//   * A thread of the program that waits in the driver for a device's work waits until another
//     thread moves the clock.
// Not of this clock: waits in poll() for a message of another process, or for room in the log's
// pipe, and what the program itself sleeps.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void test_clock_stop(void);
void test_clock_move(uint64_t ns);  // forward, whether it stands or runs
void test_clock_let_go(void);       // it runs on from where it is
// While it stands, each look at it moves it by so much: for work that ends by itself once its time
// is up, and looks at the clock as it goes on. 0, as at first: looks take no time.
void test_clock_look_takes(uint64_t ns);

// Returns once each of Cistern's own threads waits for a time that has not come, or has ended: what
// they had to do up to now is done. At once where there are none. It never returns beside one that
// waits for anything else, as for importers of IPC handles, nor after one that ended before it
// waited at all, as at the end of the process.
void test_clock_settle(void);

// How many sleeps and waits for a time began so far, of whatever thread: by that a test sees that
// another thread has come to wait.
uint64_t test_clock_waits(void);

// What the object and the simulator call; weak references, so that without the library they take
// the system's time. `word`: as for a futex; null: a sleep.
uint64_t cistern_clock_now_ns(void);
void cistern_clock_wait(uint32_t* word, uint32_t expected, uint64_t ns);
// Of the simulator: a call takes its time; a device's work waits until the clock gets there, and
// never moves it.
void cistern_clock_spend(uint64_t ns);
void cistern_clock_reach(uint64_t time_ns);

#ifdef __cplusplus
}
#endif
