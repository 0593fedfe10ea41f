// SPDX-License-Identifier: Apache-2.0
// Finds what a program repeats: the longest stretch of requests in which each has the same size as
// the one a period before, and the same call site if that is known. Also finds the best beginning
// for a period: where the fewest bytes are live, so that few blocks outlive it, and where a phase
// begins, if there are phases.
//
// Any thread; nothing is kept. Without memory it reports that nothing repeats.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

// Requests by their number.
struct Repeats {
  uint64_t from = 0, to = 0;  // `to` is behind the last one
  uint64_t period = 0;        // in requests; there are at least two periods
};

// The requests, and where each comes from. An empty span is not compared.
struct Requests {
  std::span<const Lifetime> lives;
  std::span<const uint64_t> origins = {};  // a number for stream, range and call site together
  std::span<const uint32_t> phases = {};   // the run of a phase, rising with time; 0: in none
};

// False if nothing repeats. `to_the_end`: only what repeats up to the last request. Compares size
// and origin. If less than half as much repeats this way as by size alone, it compares only sizes,
// because a range's name or a stream may be new each time.
bool find_repeats(const Requests& requests, bool to_the_end, Repeats* out);

// Finds where the period of a plan begins: the last whole period that has the beginning of another
// one behind it. Times are numbers of calls, from 0 to `calls`. False without memory.
struct Begin {
  uint64_t request = 0;
  uint64_t before = 0;  // requests before the first whole period that begins there
};
bool find_begin(const Requests& requests, uint64_t calls, const Repeats& repeats, Begin* out);

}  // namespace cistern::alloc::plan
