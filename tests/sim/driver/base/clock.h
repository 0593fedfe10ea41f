// SPDX-License-Identifier: Apache-2.0
//
// The time simulated devices live in: the system's, or that of a preloaded test clock
// (simcuda/clock.h), which Cistern's object takes its time from, too; or with SIMCUDA_CLOCK=virtual
// one of their own that only moves when work takes time, so that a test of seconds takes none. Any
// thread.
#pragma once

#include <cstdint>

namespace simcuda {

// Once, before the first question.
void use_virtual_clock();

int64_t now_ns();

// A call takes its time: by sleeping, or by moving the virtual clock.
void advance_ns(uint64_t ns);

// Work of a device takes its time, until a point in time that may have passed.
void advance_to_ns(int64_t time_ns);

}  // namespace simcuda
