// SPDX-License-Identifier: Apache-2.0
// A row's type applied to a text: parsing with the range, and the range in words. Then names of
// settings: exact, per device, and nearly.
#include "config/table.h"
#include "config/text.h"

namespace cistern::config {
namespace {

constexpr char kSizeNote[] = " (bytes, or with K, M, G, T)";

bool in_range(const Type& type, int64_t value) {
  return value >= type.min && value <= type.max && !(type.not_zero && value == 0);
}

bool in_range(const Type& type, double value) {
  const auto min = static_cast<double>(type.min);
  if (type.min != INT64_MIN && !(type.above_min ? value > min : value >= min)) return false;
  return type.max == kNoMax || value <= static_cast<double>(type.max);
}

bool parse_integer(const Type& type, std::string_view text, int64_t& out) {
  if (type.min < 0) return parse_signed(text, out) && in_range(type, out);
  uint64_t value = 0;
  if (!parse_unsigned(text, value) || value > static_cast<uint64_t>(INT64_MAX)) return false;
  out = static_cast<int64_t>(value);
  return in_range(type, out);
}

bool parse_choice(const Type& type, std::string_view text, int64_t& out) {
  const int index = find_choice(type.words, text);
  out = type.min + index;
  return index >= 0;
}

bool parse_alignment(const Type& type, std::string_view text, int64_t& out) {
  uint64_t bytes = 0;
  if (!parse_size(text, bytes) || bytes > static_cast<uint64_t>(INT64_MAX)) return false;
  out = static_cast<int64_t>(bytes);
  return out >= type.min && (bytes & (bytes - 1)) == 0;
}

void write_words(const char* words, LineWriter& out) {
  std::string_view rest = words;
  for (bool first = true; !rest.empty(); first = false) {
    const std::string_view word = next_item(rest, '|');
    if (!first) out.text(rest.empty() ? " or " : ", ");
    out.text(word);
  }
}

void write_range(const char* noun, const Type& type, LineWriter& out) {
  out.text(noun);
  const bool bounded = type.max != kNoMax;
  if (type.min == INT64_MIN) {
    out.text(", any finite one");
  } else if (type.above_min) {
    out.text(" above ").number(type.min);
  } else if (bounded) {
    out.text(" from ").number(type.min);
  } else {
    out.text(" of at least ").number(type.min);
  }
  if (bounded) out.text(type.above_min ? " up to " : " to ").number(type.max);
  if (type.not_zero) out.text(" but not 0");
}

}  // namespace

bool parse_value(const Row& row, const char* text, Value& out) {
  const std::string_view view = text;
  if (view.empty()) return false;
  out.text = text;
  switch (row.type.kind) {
    case Kind::kBool: {
      bool yes = false;
      if (!parse_bool(view, yes)) return false;
      out.integer = yes ? 1 : 0;
      return true;
    }
    case Kind::kChoice:
      return parse_choice(row.type, view, out.integer);
    case Kind::kInteger:
      return parse_integer(row.type, view, out.integer);
    case Kind::kNumber:
      return parse_double(view, out.number) && in_range(row.type, out.number);
    case Kind::kText:
    case Kind::kPlan:
      return true;
    case Kind::kReportFile:
      return is_report_file(view);
    case Kind::kGlob:
      return is_glob(view);
    case Kind::kGlobList:
      return is_glob_list(view);
    case Kind::kAlignment:
      return parse_alignment(row.type, view, out.integer);
    case Kind::kSizeRanges:
      return parse_size_ranges(view, out.sizes);
    case Kind::kCap:
      return parse_cap(view, out.cap);
    case Kind::kPoolThreshold:
      return parse_pool_threshold(view, out.threshold);
  }
  return false;
}

void write_allowed(const Row& row, LineWriter& out) {
  switch (row.type.kind) {
    case Kind::kBool:
      out.text("1, t, true, y, yes or 0, f, false, n, no");
      break;
    case Kind::kChoice:
      write_words(row.type.words, out);
      break;
    case Kind::kInteger:
      write_range("an integer", row.type, out);
      break;
    case Kind::kNumber:
      write_range("a number", row.type, out);
      break;
    case Kind::kText:
      out.text(row.type.words);
      break;
    case Kind::kReportFile:
      out.text("a file name in which %p is the process id, %h the host, %r the rank, %% a %");
      break;
    case Kind::kPlan:
      out.text("off, auto or a file name");
      break;
    case Kind::kGlob:
      out.text("a pattern with *, ? and [...]");
      break;
    case Kind::kGlobList:
      out.text("patterns with *, ? and [...], separated by commas");
      break;
    case Kind::kAlignment:
      out.text("a power of two of at least ").number(row.type.min).text(kSizeNote);
      break;
    case Kind::kSizeRanges:
      out.text("up to ").number(kMaxSizeRanges).text(" of LOW-HIGH or SIZE, separated by commas");
      out.text(kSizeNote);
      break;
    case Kind::kCap:
      out.text("a size above 0").text(kSizeNote).text(" or a percentage above 0 up to 100%");
      break;
    case Kind::kPoolThreshold:
      out.text("auto, off or a size above 0").text(kSizeNote);
      break;
  }
  if (*row.unit != '\0') out.text(" (").text(row.unit).text(")");
}

namespace {

constexpr std::string_view kPerDevice = "<n>";
constexpr std::string_view kPrefix = "CISTERN_";
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
  if (name.size() > kLongestName || name.size() <= kPrefix.size()) return nullptr;
  const size_t typed = name.size() - kPrefix.size();
  size_t best = 2 + typed / 4;  // farther is no longer a slip of the fingers
  if (best > typed / 2 + 1) best = typed / 2 + 1;
  const char* nearest = nullptr;
  for (const Row& row : kTable) {
    const std::string_view candidate = row.name;
    if (!begins(candidate, kPrefix) || ends_with_device(candidate)) continue;
    const size_t d = distance(name, candidate);
    if (d >= best) continue;
    best = d;
    nearest = row.name;
  }
  return nearest;
}

}  // namespace cistern::config
