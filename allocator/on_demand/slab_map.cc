// SPDX-License-Identifier: Apache-2.0
#include "allocator/on_demand/slab_map.h"

#include <bit>

namespace cistern::alloc {

void SlabMap::clear() {
  some_ = 0;
  for (Word& word : all_) word.starts = word.clean = 0;
}

uint32_t SlabMap::last_start_before(uint32_t granule) const {
  uint32_t i = (granule - 1) / 64;
  uint64_t starts = all_[i].starts & (~uint64_t{0} >> (63 - (granule - 1) % 64));
  if (starts == 0) {
    const uint64_t below = some_ & ((uint64_t{1} << i) - 1);
    i = static_cast<uint32_t>(std::bit_width(below)) - 1;
    starts = all_[i].starts;
  }
  return i * 64 + static_cast<uint32_t>(std::bit_width(starts)) - 1;
}

}  // namespace cistern::alloc
