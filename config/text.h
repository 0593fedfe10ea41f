// SPDX-License-Identifier: Apache-2.0
// Text of settings and text for people: from text to value, globs, which characters may be shown,
// and one line in a fixed buffer. Settings are read before main(), in every process under the
// preload. So nothing here allocates, asks the locale or throws. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "config/policy.h"

namespace cistern::config {

// --- Text to value, strictly: the whole text must parse, nothing is skipped at either end, and a
// value that does not fit is refused, not clamped. Each function returns false and leaves `out`
// alone when the text is not such a value. No libc parser is used: those skip blanks, accept signs
// for unsigned numbers and ask the locale for the decimal point.

// 1 t true y yes, 0 f false n no, in any case.
bool parse_bool(std::string_view text, bool& out);

// Decimal (leading zeros do not mean octal) or 0x hexadecimal.
bool parse_unsigned(std::string_view text, uint64_t& out);

// The same with an optional sign.
bool parse_signed(std::string_view text, int64_t& out);

// Decimal with optional sign, fraction and exponent; finite. Correctly rounded up to 15 digits and
// exponents up to 22, beyond that within one unit of the last place.
bool parse_double(std::string_view text, double& out);

// An unsigned integer with an optional K, M, G or T (powers of 1024, either case).
bool parse_size(std::string_view text, uint64_t& out);

// LOW-HIGH or SIZE, separated by commas.
bool parse_size_ranges(std::string_view text, SizeRanges& out);

// A size above 0, or a percentage above 0 up to 100 such as 62.5%.
bool parse_cap(std::string_view text, Cap& out);

// auto, off, or a size above 0.
bool parse_pool_threshold(std::string_view text, PoolThreshold& out);

// A glob that a matcher can use: not empty, each [ closed, no \ at the end.
bool is_glob(std::string_view text);

// Globs separated by commas.
bool is_glob_list(std::string_view text);

// A file name in which % is followed by p, h, r or %.
bool is_report_file(std::string_view text);

// Index of `word` in a list such as "a|b|c", or -1.
int find_choice(std::string_view choices, std::string_view word);

// Cuts the text before the first `separator` off `rest` and returns it; the separator goes too.
std::string_view next_item(std::string_view& rest, char separator);

// text[from, to). In place of string_view's substr, which can throw (and in place of starts_with
// and ends_with, which are made of it): the object has no libstdc++ to throw with.
constexpr std::string_view part(std::string_view text, size_t from, size_t to) {
  return {text.data() + from, to - from};
}

constexpr bool begins(std::string_view text, std::string_view with) {
  return text.size() >= with.size() && part(text, 0, with.size()) == with;
}

constexpr bool ends(std::string_view text, std::string_view with) {
  return text.size() >= with.size() && part(text, text.size() - with.size(), text.size()) == with;
}

// --- glob.cc: globs of settings, and the built-in ones of CISTERN_SKIP_GRADS and `cistern plan
// --skip-grads`. A glob is as in the shell: * and ?, [abc], [a-z], [!a] or [^a], and \ before a
// literal character. It matches bytes, not characters, and a / is like any other byte. Only globs
// that is_glob() accepts may be matched.

bool matches_glob(std::string_view glob, std::string_view text);

// Whether a name belongs to the backward part of a training step. `function`: the text names a
// range or a function, else a file. Some words count only in ranges and functions, because users'
// folders may happen to contain them.
bool names_backward(std::string_view text, bool function);

// --- Text for people. Names, paths and values may hold any byte. They must neither control a
// terminal nor look like another line. The rule is here, in `shown` of scripts/cistern and in
// scripts/cistern_trace.py. These characters are replaced:
//
//   C0 controls and DEL
//   C1 controls            U+0080 to U+009F
//   line ends              U+2028, U+2029
//   directions of writing  U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069
//   bytes that are not well-formed UTF-8, each by itself

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
