// SPDX-License-Identifier: Apache-2.0
// How the driver rounds allocations. The pools follow it, so that they never take more of the
// device than the driver alone would: large allocations take whole pages of 2 MiB, smaller ones
// share such pages in granules of 512 bytes.
#pragma once

#include <cstdint>

namespace cistern::alloc {

inline constexpr uint64_t kDriverPage = uint64_t{2} << 20;
inline constexpr uint64_t kDriverSharesBelow = uint64_t{1} << 20;
inline constexpr uint64_t kDriverGranule = 512;

constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace cistern::alloc
