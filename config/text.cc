// SPDX-License-Identifier: Apache-2.0
#include "config/text.h"

namespace cistern::config {
namespace {

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool same_word(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

bool take_sign(std::string_view& text) {
  if (text.empty() || (text[0] != '-' && text[0] != '+')) return false;
  const bool negative = text[0] == '-';
  text.remove_prefix(1);
  return negative;
}

// The digits of a decimal number: value = mantissa * 10^exponent.
struct Decimal {
  uint64_t mantissa = 0;
  int exponent = 0;
  int digits = 0;

  void add(char c, bool after_point) {
    ++digits;
    // 19 digits fit; the others only move the point.
    if (mantissa < 1'000'000'000'000'000'000u) {
      mantissa = mantissa * 10 + static_cast<uint64_t>(c - '0');
      if (after_point) --exponent;
    } else if (!after_point) {
      ++exponent;
    }
  }
};

bool read_digits(std::string_view& text, bool after_point, Decimal& out) {
  const int before = out.digits;
  while (!text.empty() && is_digit(text[0])) {
    out.add(text[0], after_point);
    text.remove_prefix(1);
  }
  return out.digits > before;
}

bool read_exponent(std::string_view text, int& out) {
  const bool negative = take_sign(text);
  if (text.empty()) return false;
  int value = 0;
  for (const char c : text) {
    if (!is_digit(c)) return false;
    if (value < 100'000) value = value * 10 + (c - '0');
  }
  out += negative ? -value : value;
  return true;
}

template <typename Float>
Float scale(Float mantissa, int exponent) {
  int rest = exponent < 0 ? -exponent : exponent;
  Float power = 1;
  for (Float base = 10; rest != 0; rest >>= 1, base *= base) {
    if ((rest & 1) != 0) power *= base;
  }
  return exponent < 0 ? mantissa / power : mantissa * power;
}

bool to_double(const Decimal& decimal, double& out) {
  // Both operands exact in a double, so the one operation rounds correctly.
  if (decimal.mantissa < 1ull << 53 && decimal.exponent >= -22 && decimal.exponent <= 22) {
    out = scale(static_cast<double>(decimal.mantissa), decimal.exponent);
    return true;
  }
  if (decimal.mantissa == 0) return out = 0, true;
  constexpr int kBeyond = 400;  // past any double, in both directions
  const int low = decimal.exponent < -kBeyond ? -kBeyond : decimal.exponent;
  const auto mantissa = static_cast<long double>(decimal.mantissa);
  const long double value = scale(mantissa, low > kBeyond ? kBeyond : low);
  if (value > static_cast<long double>(__DBL_MAX__)) return false;
  out = static_cast<double>(value);
  return true;
}

bool read_range(std::string_view item, SizeRange& out) {
  const size_t dash = item.find('-');
  if (dash == std::string_view::npos) {
    if (!parse_size(item, out.low)) return false;
    out.high = out.low;
    return true;
  }
  return parse_size(part(item, 0, dash), out.low) &&
         parse_size(part(item, dash + 1, item.size()), out.high) && out.low <= out.high;
}

}  // namespace

std::string_view next_item(std::string_view& rest, char separator) {
  const size_t end = rest.find(separator);
  if (end == std::string_view::npos) {
    const std::string_view last = rest;
    rest = std::string_view();
    return last;
  }
  const std::string_view item = part(rest, 0, end);
  rest.remove_prefix(end + 1);
  return item;
}

bool parse_bool(std::string_view text, bool& out) {
  for (const char* yes : {"1", "t", "true", "y", "yes"}) {
    if (same_word(text, yes)) return out = true, true;
  }
  for (const char* no : {"0", "f", "false", "n", "no"}) {
    if (same_word(text, no)) return out = false, true;
  }
  return false;
}

bool parse_unsigned(std::string_view text, uint64_t& out) {
  const bool hex = text.size() > 2 && text[0] == '0' && lower(text[1]) == 'x';
  const unsigned base = hex ? 16 : 10;
  if (hex) text.remove_prefix(2);
  if (text.empty()) return false;
  uint64_t value = 0;
  for (const char c : text) {
    const int digit = hex ? hex_digit(c) : (is_digit(c) ? c - '0' : -1);
    if (digit < 0) return false;
    if (__builtin_mul_overflow(value, base, &value)) return false;
    if (__builtin_add_overflow(value, static_cast<uint64_t>(digit), &value)) return false;
  }
  out = value;
  return true;
}

bool parse_signed(std::string_view text, int64_t& out) {
  const bool negative = take_sign(text);
  uint64_t magnitude = 0;
  if (!parse_unsigned(text, magnitude)) return false;
  const uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0);
  if (magnitude > limit) return false;
  out = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return true;
}

bool parse_double(std::string_view text, double& out) {
  const bool negative = take_sign(text);
  Decimal decimal;
  read_digits(text, false, decimal);
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    read_digits(text, true, decimal);
  }
  if (decimal.digits == 0) return false;
  if (!text.empty()) {
    if (lower(text[0]) != 'e') return false;
    text.remove_prefix(1);
    if (!read_exponent(text, decimal.exponent)) return false;
  }
  double value = 0;
  if (!to_double(decimal, value)) return false;
  out = negative ? -value : value;
  return true;
}

bool parse_size(std::string_view text, uint64_t& out) {
  if (text.empty()) return false;
  unsigned shift = 0;
  switch (lower(text.back())) {
    case 'k':
      shift = 10;
      break;
    case 'm':
      shift = 20;
      break;
    case 'g':
      shift = 30;
      break;
    case 't':
      shift = 40;
      break;
    default:
      break;
  }
  if (shift != 0) text.remove_suffix(1);
  uint64_t value = 0;
  if (!parse_unsigned(text, value) || value > UINT64_MAX >> shift) return false;
  out = value << shift;
  return true;
}

bool parse_size_ranges(std::string_view text, SizeRanges& out) {
  SizeRanges ranges{};
  for (bool more = true; more;) {
    more = text.find(',') != std::string_view::npos;
    if (ranges.count == kMaxSizeRanges) return false;
    if (!read_range(next_item(text, ','), ranges.range[ranges.count++])) return false;
  }
  out = ranges;
  return true;
}

bool parse_cap(std::string_view text, Cap& out) {
  Cap cap{};
  if (!text.empty() && text.back() == '%') {
    text.remove_suffix(1);
    cap.kind = CapKind::kPercent;
    if (!parse_double(text, cap.percent) || !(cap.percent > 0 && cap.percent <= 100)) return false;
  } else {
    cap.kind = CapKind::kBytes;
    if (!parse_size(text, cap.bytes) || cap.bytes == 0) return false;
  }
  out = cap;
  return true;
}

bool parse_pool_threshold(std::string_view text, PoolThreshold& out) {
  const int word = find_choice("auto|off", text);
  PoolThreshold threshold{static_cast<ThresholdMode>(word), 0};
  if (word < 0) {
    threshold.mode = ThresholdMode::kBytes;
    if (!parse_size(text, threshold.bytes) || threshold.bytes == 0) return false;
  }
  out = threshold;
  return true;
}

bool is_glob(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && ++i == text.size()) return false;
    if (text[i] != '[') continue;
    i = text.find(']', i + 2);  // the first character inside may itself be ]
    if (i == std::string_view::npos) return false;
  }
  return !text.empty();
}

bool is_glob_list(std::string_view text) {
  for (bool more = true; more;) {
    more = text.find(',') != std::string_view::npos;
    if (!is_glob(next_item(text, ','))) return false;
  }
  return true;
}

bool is_report_file(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') continue;
    if (++i == text.size() || std::string_view("phr%").find(text[i]) == std::string_view::npos) {
      return false;
    }
  }
  return !text.empty();
}

int find_choice(std::string_view choices, std::string_view word) {
  for (int index = 0; !choices.empty(); ++index) {
    if (next_item(choices, '|') == word) return index;
  }
  return -1;
}

LineWriter::LineWriter(char* out, size_t size) : out_(out), size_(size) {
  if (size_ > 0) out_[0] = '\0';
}

void LineWriter::put(char c) {
  if (length_ + 1 >= size_) return;
  out_[length_++] = c;
  out_[length_] = '\0';
}

LineWriter& LineWriter::text(std::string_view text) {
  for (const char c : text) put(c);
  return *this;
}

LineWriter& LineWriter::number(int64_t number) {
  uint64_t rest = static_cast<uint64_t>(number);
  if (number < 0) {
    put('-');
    rest = 0 - rest;
  }
  char digits[20];
  size_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + rest % 10);
    rest /= 10;
  } while (rest != 0);
  while (count > 0) put(digits[--count]);
  return *this;
}

LineWriter& LineWriter::quoted(std::string_view text, size_t max) {
  size_t end = text.size();
  if (end > max) {
    end = max;
    // Not in the middle of a UTF-8 sequence: its later bytes are 10xxxxxx.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  }
  put('"');
  for_each_shown(text.substr(0, end), "?", [this](std::string_view piece) { this->text(piece); });
  if (end < text.size()) this->text("...");
  put('"');
  return *this;
}

}  // namespace cistern::config
