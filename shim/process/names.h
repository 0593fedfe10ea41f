// SPDX-License-Identifier: Apache-2.0
// The process's table of names of ranges, functions and files; each has one number. Any thread. It
// is a file of its own because folders that do not include each other share the table.
#pragma once

#include "allocator/record/names.h"

namespace cistern::shim {

inline constinit alloc::Names names_of_process{};
inline alloc::Names& names() { return names_of_process; }

}  // namespace cistern::shim
