// SPDX-License-Identifier: Apache-2.0
// The names of this process: of ranges, functions and files, each with one number. Any thread.
#pragma once

#include "allocator/record/names.h"

namespace cistern::shim {

alloc::Names& names();

}  // namespace cistern::shim
