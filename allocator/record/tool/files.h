// SPDX-License-Identifier: Apache-2.0
// The files that `cistern trace` and `cistern plan` read and write. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cistern::alloc::tool {

// Longer files are not read, nor are recordings that say so of themselves.
inline constexpr uint64_t kMostRead = uint64_t{8} << 30;

// All of a file or a pipe, 8 GiB at most. No device: it may have no end, or do something when it is
// opened. False after one line in `problem`, which calls it `what`.
bool read_file(const std::string& path, const char* what, std::vector<uint8_t>& out,
               std::string& problem);

// A whole new file for its user alone, or none: it takes the place of a file or link of that name,
// and is written through no link. What nobody else can have made (allocator/base/file_names.h) is
// written as it is. Other devices and pipes are refused. False after one line in `problem`, which
// calls it `what`.
bool write_file(const std::string& path, const std::string& text, const char* what,
                std::string& problem);

}  // namespace cistern::alloc::tool
