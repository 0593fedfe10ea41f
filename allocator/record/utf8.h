// SPDX-License-Identifier: Apache-2.0
// Texts come from the recorded program, and may be anything.
#pragma once

#include <cstddef>
#include <string_view>

namespace cistern::alloc {

// Bytes of the well-formed UTF-8 character that a text begins with, which is not empty; 0: there is
// none.
inline size_t utf8_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xF5   ? 0
                       : first >= 0xF0 ? 4
                       : first >= 0xE0 ? 3
                       : first >= 0xC2 ? 2
                                       : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond = (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
  return overlong || beyond ? 0 : bytes;
}

}  // namespace cistern::alloc
