// SPDX-License-Identifier: Apache-2.0
// The numbers by which the pools order what happens: frees by tickets, allocations by epochs, and
// idle time by ticks. They are plain integers, so that records of blocks and chunks can carry them.
// Each type names the file that gives its numbers out. Any thread.
#pragma once

#include <cstdint>

namespace cistern::alloc {

// Numbers frees and synchronisations in the order they happened (reclaim/reclaim.h gives them out).
using Ticket = uint64_t;

// Numbers the moments at which executable graphs were made. A block carries the epoch in which it
// was handed out (reclaim/reclaim.h).
using Epoch = uint64_t;

// When a chunk was first seen idle (reclaim/idle_release.h): a tick of the clock, or the number of
// a look (ContextMemory). kNotSeen: not seen idle since it was last used.
using Tick = uint16_t;
inline constexpr Tick kNotSeen = 0;

// An age is the number of ticks from one moment to a later one. After kTicksInAll it starts at 0
// again. At worst that keeps a chunk for one more delay.
inline constexpr uint32_t kTicksInAll = 0xffff;
inline Tick next_tick(Tick tick) { return static_cast<Tick>(1 + tick % kTicksInAll); }
inline uint32_t age(Tick now, Tick since) {
  return (uint32_t{now} + kTicksInAll - since) % kTicksInAll;
}

}  // namespace cistern::alloc
