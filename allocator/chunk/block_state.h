// SPDX-License-Identifier: Apache-2.0
// Where a block that was cut from a chunk stands, in every strategy.
#pragma once

#include <cstdint>

namespace cistern::alloc {

enum class BlockState : uint8_t {
  live,     // the program holds it
  waiting,  // freed: waiting, parked, garbage or in quarantine
  clean,    // ready to be handed out
  kept,     // the same, to requests of its own size only (ReuseRule::same_size)
  room,     // kept for the next member of a group (chunk_pools/groups.h)
  hole,     // addresses without memory (allocator/expandable)
  known,    // clean, but known outside the process: its units go back, nothing reuses it
  moving,   // memory is being put behind it, or taken away, by one thread
};

}  // namespace cistern::alloc
