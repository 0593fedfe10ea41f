// SPDX-License-Identifier: Apache-2.0
// What a recording holds as text for people and programs.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "allocator/record/tool/reader.h"

namespace cistern::alloc::tool {

// With U+FFFD for what is not shown (config/text.h): texts come from the recorded program, and go
// to terminals.
std::string printable(std::string_view text);

// In quotes.
std::string json(std::string_view text);

// "12.3 MiB"
std::string mib(uint64_t bytes);

// "function (file:line)" of Python; "function+0x12 (file, src/train.cc:42)", the latter with debug
// information, or "file+0x1234" where no symbol is known.
std::string frame_text(const Recording& recording, const Frame& frame);

// The frame that says most (program_code.h): "app+0x4f12 from app+0x31a0" where it has no name.
std::string site_text(const Recording& recording, uint32_t site);

inline constexpr const char* kUnknown = "(not known)";

// What the pictures of `cistern trace` and `cistern plan` have in common: SVG that needs no other
// file.

// The head and a white ground of so many units.
std::string begin_picture(double width, double height);

// What is shown of a text (text.h), with XML's own characters written out.
std::string xml(std::string_view text);

// 255 bytes of it at most.
void append(std::string& text, const char* format, auto... values) {
  char line[256];
  const int length = std::snprintf(line, sizeof line, format, values...);
  text.append(line, static_cast<size_t>(std::clamp<int>(length, 0, sizeof line - 1)));
}

}  // namespace cistern::alloc::tool
