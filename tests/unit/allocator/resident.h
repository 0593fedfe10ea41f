// SPDX-License-Identifier: Apache-2.0
// What this process takes of the host, in pages.
#pragma once

#include <cstdint>
#include <fstream>

namespace cistern::test {

// A sanitizer's own memory grows with what is touched.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsPages = false;
#else
constexpr bool kCountsPages = true;
#endif

inline uint64_t resident_bytes() {
  uint64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * 4096;
}

}  // namespace cistern::test
