// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <random>
#include <string>

#include "config/text.h"
#include "tests/catch.h"

namespace cistern::config::parse_test {
namespace {

TEST_CASE("integers are taken up to their limits") {
  uint64_t u = 0;
  CHECK(parse_unsigned("18446744073709551615", u));
  CHECK(u == UINT64_MAX);
  CHECK(parse_unsigned("0xFFFFFFFFFFFFFFFF", u));
  CHECK_FALSE(parse_unsigned("18446744073709551616", u));
  CHECK_FALSE(parse_unsigned("0x10000000000000000", u));
  CHECK_FALSE(parse_unsigned("", u));
  int64_t i = 0;
  CHECK(parse_signed("-9223372036854775808", i));
  CHECK(i == INT64_MIN);
  CHECK_FALSE(parse_signed("-9223372036854775809", i));
  CHECK_FALSE(parse_signed("9223372036854775808", i));
}

TEST_CASE("a leading zero does not mean octal") {
  uint64_t u = 0;
  CHECK(parse_unsigned("010", u));
  CHECK(u == 10);
}

TEST_CASE("a refused text leaves the value alone") {
  uint64_t u = 7;
  double d = 7;
  CHECK_FALSE(parse_unsigned("12x", u));
  CHECK_FALSE(parse_double("1.2.3", d));
  CHECK(u == 7);
  CHECK(d == 7);
}

TEST_CASE("doubles of up to 15 digits are what strtod makes of them") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const auto mantissa = static_cast<long long>(random() % 1'000'000'000'000'000);
    const int exponent = static_cast<int>(random() % 45) - 22;
    char text[64];
    std::snprintf(text, sizeof text, "%llde%d", mantissa, exponent);
    double d = 0;
    INFO(text);
    REQUIRE(parse_double(text, d));
    REQUIRE(d == std::strtod(text, nullptr));
  }
}

TEST_CASE("any other double is within one unit of the last place") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 20000; ++i) {
    char text[64];
    std::snprintf(text, sizeof text, "%llu.%llue%d", static_cast<unsigned long long>(random()),
                  static_cast<unsigned long long>(random()),
                  static_cast<int>(random() % 500) - 250);
    const double exact = std::strtod(text, nullptr);
    double d = 0;
    INFO(text);
    REQUIRE(parse_double(text, d));
    REQUIRE(std::abs(d - exact) <= std::abs(std::nextafter(exact, 0.0) - exact) * 2);
  }
}

TEST_CASE("numbers beyond a double are refused, below it are zero") {
  double d = 1;
  CHECK_FALSE(parse_double("1e309", d));
  CHECK_FALSE(parse_double("1e99999999999", d));
  CHECK_FALSE(parse_double(std::string(400, '9'), d));
  CHECK(parse_double("1e-99999999999", d));
  CHECK(d == 0);
  CHECK(parse_double("0e99999", d));
  CHECK(parse_double("1.7976931348623157e308", d));
  CHECK(d == std::numeric_limits<double>::max());
}

TEST_CASE("sizes carry powers of 1024 and refuse what does not fit") {
  uint64_t u = 0;
  CHECK(parse_size("3k", u));
  CHECK(u == 3072);
  CHECK(parse_size("16777215T", u));
  CHECK(u == 16777215ull << 40);
  CHECK_FALSE(parse_size("16777216T", u));
  CHECK_FALSE(parse_size("K", u));
  CHECK_FALSE(parse_size("1KK", u));
}

TEST_CASE("size ranges keep their order and both ends") {
  SizeRanges ranges{};
  REQUIRE(parse_size_ranges("1M-64M,256K", ranges));
  REQUIRE(ranges.count == 2);
  CHECK(ranges.range[0].low == 1u << 20);
  CHECK(ranges.range[0].high == 64u << 20);
  CHECK(ranges.range[1].low == ranges.range[1].high);
}

TEST_CASE("a limit in percent is a share of the total, in bytes at most the total") {
  Cap cap{};
  REQUIRE(parse_cap("25%", cap));
  CHECK(cap.bytes_of(8000) == 2000);
  REQUIRE(parse_cap("100%", cap));
  CHECK(cap.bytes_of(UINT64_MAX) == UINT64_MAX);
  REQUIRE(parse_cap("1K", cap));
  CHECK(cap.bytes_of(8000) == 1024);
  CHECK(cap.bytes_of(1000) == 1000);
  CHECK(Cap{}.bytes_of(1000) == 1000);
}

TEST_CASE("a limit never becomes 0 bytes, which would read as none") {
  Cap cap{};
  for (const char* text : {"0.00000001%", "1e-300%", "4e-9%"}) {
    INFO(text);
    REQUIRE(parse_cap(text, cap));
    CHECK(cap.bytes_of(8000) == 1);
  }
  REQUIRE(parse_cap("1", cap));
  CHECK(cap.bytes_of(8000) == 1);
}

TEST_CASE("a line never runs over and always ends") {
  for (size_t size = 0; size < 12; ++size) {
    char room[12];
    std::fill(std::begin(room), std::end(room), '#');
    LineWriter(room, size).text("abc").number(-1234567890).quoted("x");
    INFO(size);
    if (size > 0) CHECK(std::string(room).size() == size - 1);
    for (size_t i = size; i < sizeof room; ++i) CHECK(room[i] == '#');
  }
}

TEST_CASE("quoted text stays on one line and is cut between characters") {
  Line line;
  LineWriter(line).quoted(
      "a\n\x1b[31m\x7f"
      "b");
  CHECK(std::string(line.text) == "\"a??[31m?b\"");
  LineWriter(line).quoted("ab\xc3\xa9", 3);
  CHECK(std::string(line.text) == "\"ab...\"");
  LineWriter(line).number(INT64_MIN);
  CHECK(std::string(line.text) == "-9223372036854775808");
}

}  // namespace
}  // namespace cistern::config::parse_test
