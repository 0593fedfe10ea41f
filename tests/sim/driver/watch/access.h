// SPDX-License-Identifier: Apache-2.0
//
// Is a stretch of addresses the program's to touch, and which bytes is it really? Physical memory
// mapped at several places is one memory; a stretch may run over mappings laid side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/work.h"
#include "watch/clock.h"
#include "watch/history.h"

namespace simcuda {

class Context;

// The lives a stretch is checked against.
struct Memory {
  Lives allocations;  // and mappings, registrations
  Lives blocks;       // published by pools
};

struct Piece {
  uint64_t key;  // the bytes' own address, of physical memory its watcher key
  uint64_t address;
  uint64_t bytes;
};

struct Verdict {
  std::vector<Piece> pieces;
  // Null: fine. Otherwise what is wrong at `address`.
  const char* wrong = nullptr;
  uint64_t address = 0;
};

// `clock` is what the touching work, of this context, knows: a stream-ordered free counts if it is
// before that. A pool may fill or free what it has not handed out. Kernels reach another device's
// allocations only with peer access. Caller holds exec_mutex().
Verdict examine(const Access& access, const Work& work, const Context& context, Memory& memory,
                const VectorClock& clock);

}  // namespace simcuda
