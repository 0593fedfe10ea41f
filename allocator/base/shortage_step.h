// SPDX-License-Identifier: Apache-2.0
// The steps that are tried when the driver, or the cap, refuses a chunk, in this order
// (shortage.h). The ledger counts which of them served the request, and the log names it.
#pragma once

#include <cstdint>

namespace cistern::alloc {

enum class Step : uint8_t {
  clean,      // memory that had become clean by then
  returned,   // a new chunk as without a shortage, after idle ones were returned
  smaller,    // a smaller chunk: half as large, again and again
  exact,      // a driver allocation of just the request
  elsewhere,  // a block out of the way of the usual search, or waited for
  refused,    // nothing: the program gets the driver's code
};
inline constexpr int kSteps = 6;

inline constexpr const char* kStepNames[kSteps] = {"clean", "returned",  "smaller",
                                                   "exact", "elsewhere", "refused"};

}  // namespace cistern::alloc
