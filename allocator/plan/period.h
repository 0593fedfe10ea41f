// SPDX-License-Identifier: Apache-2.0
// Finds what a program repeats: the longest stretch of requests in which each has as many bytes as
// the one a period before, and the same call site if that is known. Also finds the best begin of a
// period: where a phase begins, if there are phases, and the least is live, so that few blocks
// outlive it.
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
  uint64_t period = 0;        // there are at least two of them
};

// Where each request comes from; without any, that is not compared.
struct Requests {
  std::span<const Lifetime> lives;
  std::span<const uint64_t> origins = {};  // stream, range, call site: the same number, the same
  std::span<const uint32_t> phases = {};   // the run of a phase, later ones higher; 0: in none
};

// False where nothing repeats. `to_the_end`: only what repeats up to the last request. Where by
// size and origin less than half repeats of what does by size, sizes alone decide: a range's name,
// or a stream, may be new each time.
bool find_repeats(const Requests& requests, bool to_the_end, Repeats* out);

// Where the period of a plan begins: the last whole one, at a request behind which another period
// begins. Times are numbers of calls, `calls` of them.
struct Begin {
  uint64_t request = 0;
  uint64_t before = 0;  // requests before the first whole period that begins there
};
bool find_begin(const Requests& requests, uint64_t calls, const Repeats& repeats, Begin* out);

}  // namespace cistern::alloc::plan
