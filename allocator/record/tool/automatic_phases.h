// SPDX-License-Identifier: Apache-2.0
// Phases of a program that has no markers and names no ranges (allocator/record/phases.h). Its
// recording has none of them, since whoever records does not know how large a freed block was.
#pragma once

#include "allocator/record/tool/reader.h"

namespace cistern::alloc::tool {

// Gives every event its phase, unless the recording has phases of its own or the program never
// waited for its work.
void find_phases(Recording& recording);

}  // namespace cistern::alloc::tool
