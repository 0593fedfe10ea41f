// SPDX-License-Identifier: Apache-2.0
// The names of functions in the files that a recording refers to, as far as those files are here
// and still the same. One thread.
#pragma once

#include <cstdint>
#include <string>

namespace cistern::alloc::tool {

// The function that holds an offset of a file, demangled, and how far it lies in that function; ""
// where that is not known.
std::string function_at(const std::string& path, uint64_t offset, uint64_t* into);

}  // namespace cistern::alloc::tool
