// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/site_words.h"

#include <cstddef>

namespace cistern::shim {
namespace {

bool is_small(char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9'); }
bool is_capital(char c) { return 'A' <= c && c <= 'Z'; }
bool in_word(char c) { return is_small(c) || is_capital(c); }
char small(char c) { return is_capital(c) ? static_cast<char>(c - 'A' + 'a') : c; }

// Whether a word begins, or ends, at text[at].
bool is_boundary(std::string_view text, size_t at) {
  if (at == 0 || at == text.size()) return true;
  const char before = text[at - 1], behind = text[at];
  return !in_word(before) || !in_word(behind) || (is_small(before) && is_capital(behind));
}

// In the text, two words of an operator are separated by one other character, or by none.
bool named_at(std::string_view text, size_t at, std::string_view op) {
  if (!is_boundary(text, at)) return false;
  for (const char c : op) {
    if (c == '_') {
      if (at < text.size() && !in_word(text[at])) {
        ++at;
      } else if (!is_boundary(text, at)) {
        return false;
      }
    } else {
      if (at == text.size() || small(text[at]) != c) return false;
      ++at;
    }
  }
  return is_boundary(text, at);
}

}  // namespace

bool names_operator(std::string_view text, std::string_view op) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (named_at(text, at, op)) return true;
  }
  return false;
}

}  // namespace cistern::shim
