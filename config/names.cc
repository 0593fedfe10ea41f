// SPDX-License-Identifier: Apache-2.0
//
// Names of settings: exact, per device, and nearly.
#include "config/parse.h"
#include "config/table.h"

namespace cistern::config {
namespace {

constexpr std::string_view kPerDevice = "<n>";
constexpr std::string_view kOurs = "CISTERN_";
constexpr size_t kLongestName = 48;

bool ends_with_device(std::string_view name) { return ends(name, kPerDevice); }

// The number that stands for <n>: decimal, one spelling only, so that no device is set twice.
bool parse_device(std::string_view pattern, std::string_view name, unsigned& device) {
  std::string_view stem = pattern;
  stem.remove_suffix(kPerDevice.size());
  if (!begins(name, stem)) return false;
  const std::string_view number = part(name, stem.size(), name.size());
  if (number.size() > 9 || (number.size() > 1 && number[0] == '0')) return false;
  uint64_t value = 0;
  if (!parse_unsigned(number, value)) return false;
  device = static_cast<unsigned>(value);
  return true;
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

size_t min3(size_t a, size_t b, size_t c) {
  const size_t ab = a < b ? a : b;
  return ab < c ? ab : c;
}

// Damerau-Levenshtein with adjacent swaps, case ignored; three rows of the matrix.
size_t distance(std::string_view a, std::string_view b) {
  size_t rows[3][kLongestName + 1]{};
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t* now = rows[i % 3];
    const size_t* last = rows[(i + 2) % 3];
    const size_t* before = rows[(i + 1) % 3];
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = upper(a[i - 1]) == upper(b[j - 1]);
      now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1));
      const bool swapped = i > 1 && j > 1 && upper(a[i - 1]) == upper(b[j - 2]) &&
                           upper(a[i - 2]) == upper(b[j - 1]);
      if (swapped && before[j - 2] + 1 < now[j]) now[j] = before[j - 2] + 1;
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

const Row* find_row(std::string_view name, unsigned& device) {
  device = kNoDevice;
  for (const Row& row : kTable) {
    if (name == row.name) return ends_with_device(name) ? nullptr : &row;
    if (ends_with_device(row.name) && parse_device(row.name, name, device)) return &row;
  }
  return nullptr;
}

const Row* find_elsewhere(std::string_view name) {
  for (const Row& row : kTable) {
    for (std::string_view names = row.elsewhere; !names.empty();) {
      if (next_item(names, ',') == name) return &row;
      if (begins(names, " ")) names.remove_prefix(1);
    }
  }
  return nullptr;
}

const char* nearest_name(std::string_view name) {
  if (name.size() > kLongestName || name.size() <= kOurs.size()) return nullptr;
  const size_t typed = name.size() - kOurs.size();
  size_t best = 2 + typed / 4;  // farther is no longer a slip of the fingers
  if (best > typed / 2 + 1) best = typed / 2 + 1;
  const char* nearest = nullptr;
  for (const Row& row : kTable) {
    const std::string_view candidate = row.name;
    if (!begins(candidate, kOurs) || ends_with_device(candidate)) continue;
    const size_t d = distance(name, candidate);
    if (d >= best) continue;
    best = d;
    nearest = row.name;
  }
  return nearest;
}

}  // namespace cistern::config
