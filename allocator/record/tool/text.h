// SPDX-License-Identifier: Apache-2.0
// What `cistern trace` and `cistern plan` read and write: files, and texts of a recording for
// people and programs. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/record/tool/recording.h"

namespace cistern::alloc::tool {

// Replaces what a terminal must not get by U+FFFD (config/text.h), because texts come from the
// recorded program.
std::string printable(std::string_view text);

// A JSON string, with quotes.
std::string json(std::string_view text);

// In quotes, for programs. What is not shown is written as \uXXXX: a character by its number, a
// byte that is no UTF-8 as U+DC00 plus the byte, as in Python's file names.
std::string exact_json(std::string_view text);

// "12.3 MiB"
std::string mib(uint64_t bytes);

// Python: "function (file:line)". Native: "function+0x12 (file, src/train.cc:42)", without the
// source line if there is no debug information, or "file+0x1234" if no symbol is known.
std::string frame_text(const Recording& recording, const Frame& frame);

// The frames of shown_frames() (program_code.h). Without a name: "app+0x4f12 from app+0x31a0".
std::string site_text(const Recording& recording, uint32_t site);

inline constexpr const char* kUnknown = "(not known)";

// --- Parts of pictures: SVG that needs no other file

// The SVG head, and a white background of this size.
std::string begin_picture(double width, double height);

// As printable(), with the special characters of XML escaped.
std::string xml(std::string_view text);

// Appends formatted text, at most 255 bytes.
void append(std::string& text, const char* format, auto... values) {
  char line[256];
  const int length = std::snprintf(line, sizeof line, format, values...);
  text.append(line, static_cast<size_t>(std::clamp<int>(length, 0, sizeof line - 1)));
}

// --- Files

// Reads a whole file or pipe, of kMostRead bytes at most. Refuses devices: they may have no end, or
// opening them may have an effect. On failure false, with one line in `problem` that calls the file
// `what`.
bool read_file(const std::string& path, const char* what, std::vector<uint8_t>& out,
               std::string& problem);

// Writes a new file that only its user can read, completely or not at all. It replaces a file or
// link with that name; links are not followed. Descriptors and the devices of allocator/base/os.h
// are written directly. Other devices and pipes are refused. On failure false, with one line in
// `problem` that calls the file `what`.
bool write_file(const std::string& path, const std::string& text, const char* what,
                std::string& problem);

}  // namespace cistern::alloc::tool
