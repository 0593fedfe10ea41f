// SPDX-License-Identifier: Apache-2.0
// Text to value, strictly, and the globs that values may be. The whole text must parse, nothing is
// skipped at either end, and a value that does not fit is refused, not clamped. Each function
// returns false and leaves `out` alone when the text is not such a value. No libc parser is used:
// those skip blanks, accept signs for unsigned numbers and ask the locale for the decimal point.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "config/policy.h"

namespace cistern::config {

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

}  // namespace cistern::config
