// SPDX-License-Identifier: Apache-2.0
// The files that `cistern trace` and `cistern plan` read and write. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cistern::alloc::tool {

// Bytes. Longer files, and recordings that claim to be longer, are not read.
inline constexpr uint64_t kMostRead = uint64_t{8} << 30;

// Reads a whole file or pipe, of kMostRead bytes at most. Refuses devices: they may have no end, or
// opening them may have an effect. On failure false, with one line in `problem` that calls the file
// `what`.
bool read_file(const std::string& path, const char* what, std::vector<uint8_t>& out,
               std::string& problem);

// Writes a new file that only its user can read, completely or not at all. It replaces a file or
// link with that name; links are not followed. Descriptors and the devices of
// allocator/base/os.h are written directly. Other devices and pipes are refused. On failure
// false, with one line in `problem` that calls the file `what`.
bool write_file(const std::string& path, const std::string& text, const char* what,
                std::string& problem);

}  // namespace cistern::alloc::tool
