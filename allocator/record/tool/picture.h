// SPDX-License-Identifier: Apache-2.0
// What the pictures of `cistern trace` and `cistern plan` have in common: SVG that needs no other
// file.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

namespace cistern::alloc::tool {

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
