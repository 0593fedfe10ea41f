// SPDX-License-Identifier: Apache-2.0
// The ranges in which a thread is: NVTX's, pushed or started by the program, one inside the other.
// A range here is a way from the outermost to the innermost name, as one number: the same names
// nested in the same order are the same range, whenever and on whichever thread. Any thread.
#pragma once

#include <cstdint>

namespace cistern::shim {

// From now on NVTX reports to Cistern, as far as the program has not used NVTX yet. To be called by
// the object's constructor, i.e. in Part::at_start. Makes no CUDA call.
void switch_ranges_on();
bool ranges_on();

// What the calling thread is in; 0: in none. A started range counts for the thread that started it.
uint32_t current_range();

// The ranges known so far are 1 to range_count(). Those around a range have lower numbers.
uint32_t range_count();

struct Range {
  uint32_t parent;  // the range around it; 0: none
  uint32_t name;  // its own name, "domain/message" or "message" in the default domain, as a number
                  // of names()
};

// `range` is from 1 to range_count().
Range range_of(uint32_t range);

}  // namespace cistern::shim
