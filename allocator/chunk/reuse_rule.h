// SPDX-License-Identifier: Apache-2.0
// Which freed memory serves which request (CISTERN_MEMORY_OPTIMIZE). Under every rule only clean
// memory serves a request.
//
//   about          not set: each strategy's own rule. A whole chunk serves requests that lose at
//                  most 1/8 of it; free space in chunks is merged and cut
//   same_size      level 0: what was freed serves requests of the size that it was last asked for,
//                  to the byte. It is neither merged with its neighbours nor cut. Any other request
//                  takes memory that never was a block since its chunk came in, or another chunk.
//                  Once the source or the cap refuses that one, memory is short: then every pool
//                  forgets the sizes of what is clean in it, merges that and serves whatever fits
//                  (Ledger::sizes_forgotten); what is freed later has its size again. A chunk in
//                  which nothing is live goes back to the source as under `about`; it does not
//                  serve as a chunk of other blocks before memory is short (Chunk::cut)
//   any_that_fits  level 1: the smallest free block or chunk that is large enough, exactly, however
//                  much of it is lost. Small requests are cut from slabs and are no exception:
//                  a chunk that the program had whole serves whole requests only
#pragma once

#include <cstdint>

#include "config/policy.h"

namespace cistern::alloc {

enum class ReuseRule : uint8_t { about, same_size, any_that_fits };

inline ReuseRule reuse_rule(const config::Policy& policy) {
  if (!policy.memory_optimize.set) return ReuseRule::about;
  return policy.memory_optimize == config::ReuseLevel::kSameSize ? ReuseRule::same_size
                                                                 : ReuseRule::any_that_fits;
}

}  // namespace cistern::alloc
