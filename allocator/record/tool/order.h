// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/record/tool/events.h"

namespace cistern::alloc::tool {

// Sorts events of many threads by time; before that each thread's are in the order in which it
// recorded them, and those of one time stay so. Apart from that, what ends something comes before
// what begins something.
void sort_by_time(Events& events);

}  // namespace cistern::alloc::tool
