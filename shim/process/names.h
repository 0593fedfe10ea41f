// SPDX-License-Identifier: Apache-2.0
// The names of this process: of ranges, functions and files, each with one number. Any thread.
// Apart from all else, since rooms that do not include each other have these names in common.
#pragma once

#include "allocator/record/names.h"

namespace cistern::shim {

inline constinit alloc::Names names_of_process{};
inline alloc::Names& names() { return names_of_process; }

}  // namespace cistern::shim
