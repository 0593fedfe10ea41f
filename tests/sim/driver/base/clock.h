// SPDX-License-Identifier: Apache-2.0
//
// The time simulated devices live in: the system's, or with SIMCUDA_CLOCK=virtual one that only
// moves when work takes time, so that a test of seconds takes none. Any thread.
#pragma once

#include <cstdint>

namespace simcuda {

// Once, before the first question.
void use_virtual_clock();

int64_t now_ns();

// Time passes: by sleeping, or by moving the virtual clock.
void advance_ns(uint64_t ns);

// The same until a point in time, which may have passed.
void advance_to_ns(int64_t time_ns);

}  // namespace simcuda
