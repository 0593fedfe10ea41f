// SPDX-License-Identifier: Apache-2.0
// Call sites and ranges in words, for lines that people read. Not on the program's path: names are
// looked up in files, and the C++ library that the program has may be asked to demangle them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::shim {

// The frame that says most (allocator/record/program_code.h): "step (train.py:12)" or
// "layer+0x12 (libfoo.so)"; "0x4f12 (app) from 0x31a0 (app)" where it has no name; "an unknown call
// site" for 0. Returns `out`.
const char* describe_site(uint32_t site, char* out, size_t size);

// One level of its stack, the innermost is 0; false beyond the outermost.
bool describe_level(uint32_t site, int level, char* out, size_t size);

// "step/forward"; "no range" for 0. Returns `out`.
const char* describe_range(uint32_t range, char* out, size_t size);

}  // namespace cistern::shim
