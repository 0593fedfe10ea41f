// SPDX-License-Identifier: Apache-2.0
// Call sites in words, for lines that people read. Not on the program's path.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::shim {

// The innermost function of the program itself, beyond CUDA's own libraries: "step (train.py:12)"
// or "allocate+0x12 (libfoo.so)"; "an unknown site" where nothing is known. Returns `out`.
const char* describe_site(uint32_t site, char* out, size_t size);

}  // namespace cistern::shim
