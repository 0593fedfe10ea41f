// SPDX-License-Identifier: Apache-2.0
// Text for people: which characters may be shown, and one line in a fixed buffer.
//
// Names, paths and values may hold any byte. They must neither control a terminal nor look like
// another line. The rule is here, in `shown` of scripts/cistern and in scripts/cistern_trace.py.
// These characters are replaced:
//
//   C0 controls and DEL
//   C1 controls            U+0080 to U+009F
//   line ends              U+2028, U+2029
//   directions of writing  U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069
//   bytes that are not well-formed UTF-8, each by itself
//
// Settings are read before main(), in every process under the preload. So nothing here allocates,
// asks the locale or throws. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cistern::config {

// The length in bytes of the UTF-8 character at the start of a text, which must not be empty; 0 if
// no well-formed character is there.
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

// The code point of the well-formed character of `bytes` bytes at the start of a text.
inline uint32_t code_point(std::string_view text, size_t bytes) {
  const auto first = static_cast<unsigned char>(text[0]);
  uint32_t code = bytes == 1 ? first : first & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i)
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  return code;
}

inline bool is_shown(uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool ends_line = code == 0x2028 || code == 0x2029;
  const bool turns = code == 0x061C || code == 0x200E || code == 0x200F ||
                     (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return !control && !ends_line && !turns;
}

// Hands a text to `put`, a piece at a time, with `instead` for each character that is not shown.
template <typename Put>
void for_each_shown(std::string_view text, std::string_view instead, Put put) {
  while (!text.empty()) {
    const size_t bytes = utf8_character(text);
    const bool as_it_is = bytes != 0 && is_shown(code_point(text, bytes));
    put(as_it_is ? text.substr(0, bytes) : instead);
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
}

struct Line {
  char text[512];
};

class LineWriter {
 public:
  explicit LineWriter(Line& line) : LineWriter(line.text, sizeof line.text) {}
  LineWriter(char* out, size_t size);

  LineWriter& text(std::string_view text);
  LineWriter& number(int64_t number);
  // In double quotes, at most `max` bytes of it, with '?' for what is not shown.
  LineWriter& quoted(std::string_view text, size_t max = 80);

  size_t length() const { return length_; }

 private:
  void put(char c);

  char* out_;
  size_t size_;
  size_t length_ = 0;
};

}  // namespace cistern::config
