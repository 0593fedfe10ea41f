// SPDX-License-Identifier: Apache-2.0
#include "config/glob.h"

namespace cistern::config {
namespace {

// glob[*i] is the [ of a set; leaves *i behind its ].
bool in_set(std::string_view glob, size_t* i, char c) {
  size_t at = *i + 1;
  const bool negated = glob[at] == '!' || glob[at] == '^';
  if (negated) ++at;
  bool found = false;
  for (bool first = true; at < glob.size() && (first || glob[at] != ']'); first = false) {
    const auto low = static_cast<unsigned char>(glob[at++]);
    auto high = low;
    if (at + 1 < glob.size() && glob[at] == '-' && glob[at + 1] != ']') {
      high = static_cast<unsigned char>(glob[at + 1]);
      at += 2;
    }
    const auto byte = static_cast<unsigned char>(c);
    found = found || (low <= byte && byte <= high);
  }
  *i = at + 1;
  return found != negated;
}

// One element of the glob, which is no star, against one byte.
bool matches_one(std::string_view glob, size_t* i, char c) {
  switch (glob[*i]) {
    case '?':
      ++*i;
      return true;
    case '[':
      return in_set(glob, i, c);
    case '\\':
      ++*i;
      [[fallthrough]];
    default:
      return glob[(*i)++] == c;
  }
}

}  // namespace

// After a mismatch only the last star can take more.
bool matches_glob(std::string_view glob, std::string_view text) {
  size_t g = 0, t = 0;
  size_t after_star = std::string_view::npos, star_took_to = 0;
  while (t < text.size() || g < glob.size()) {
    if (g < glob.size() && glob[g] == '*') {
      after_star = ++g;
      star_took_to = t;
      continue;
    }
    if (g < glob.size() && t < text.size() && matches_one(glob, &g, text[t])) {
      ++t;
      continue;
    }
    if (after_star == std::string_view::npos || star_took_to == text.size()) return false;
    g = after_star;
    t = ++star_took_to;
  }
  return true;
}

}  // namespace cistern::config
