// SPDX-License-Identifier: Apache-2.0
#include "config/text.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/catch.h"

namespace shown_test {

using cistern::config::for_each_shown;
using cistern::config::utf8_character;

namespace {

// Table 3-6 of the Unicode standard, for any number of at most 21 bits.
std::string encoded(uint32_t c, size_t bytes) {
  if (bytes == 1) return std::string(1, static_cast<char>(c));
  std::string text(bytes, '\0');
  for (size_t i = bytes - 1; i > 0; --i, c >>= 6) text[i] = static_cast<char>(0x80 | (c & 0x3F));
  text[0] = static_cast<char>((0xF00u >> bytes & 0xF0u) | c);
  return text;
}

std::string shown(std::string_view text) {
  std::string out;
  for_each_shown(text, "?", [&](std::string_view piece) { out += piece; });
  return out;
}

size_t shortest(uint32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

}  // namespace

TEST_CASE("utf8: every character is read in its shortest form and in no other") {
  for (uint32_t c = 0; c < 0x200000; ++c) {
    const bool is_character = c <= 0x10FFFF && (c < 0xD800 || c >= 0xE000);
    for (size_t bytes = shortest(c); bytes <= 4; ++bytes) {
      const size_t wanted = is_character && bytes == shortest(c) ? bytes : 0;
      if (utf8_character(encoded(c, bytes)) != wanted) FAIL(std::hex << c << " in " << bytes);
    }
  }
}

TEST_CASE("utf8: what follows a character does not count, what is missing does") {
  for (const uint32_t c : {0x41u, 0xE9u, 0x20ACu, 0x1F600u}) {
    const std::string text = encoded(c, shortest(c));
    CHECK(utf8_character(text + "\xFF") == text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) CHECK(utf8_character(text.substr(0, cut)) == 0);
    for (size_t i = 1; i < text.size(); ++i) {
      std::string broken = text;
      for (const char wrong : {'\x7F', '\xC0'}) {
        broken[i] = wrong;
        CHECK(utf8_character(broken) == 0);
      }
    }
  }
}

TEST_CASE("shown: controls, line ends, directions and what is no character are replaced") {
  for (uint32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const bool hidden = c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x61C || c == 0x200E ||
                        c == 0x200F || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    const std::string text = encoded(c, shortest(c));
    if (shown("a" + text + "b") != (hidden ? "a?b" : "a" + text + "b")) FAIL(std::hex << c);
  }
  CHECK(shown(std::string_view("a\0b", 3)) == "a?b");
  CHECK(shown("\x9B"
              "2J\xC2") == "?2J?");
  CHECK(shown("\xED\xA0\x80") == "???");
  CHECK(shown("").empty());
}

}  // namespace shown_test
