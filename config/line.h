// SPDX-License-Identifier: Apache-2.0
//
// One line of text in a fixed buffer, and a writer that fills it. Settings are read before main(),
// in every process under the preload, so nothing here allocates, asks the locale or throws. What
// does not fit is cut off; the text always ends with a NUL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cistern::config {

struct Line {
  char text[512];
};

class LineWriter {
 public:
  explicit LineWriter(Line& line) : LineWriter(line.text, sizeof line.text) {}
  LineWriter(char* out, size_t size);

  LineWriter& text(std::string_view text);
  LineWriter& number(int64_t number);
  // In double quotes, at most `max` bytes of it, with '?' for what is not shown (shown.h).
  LineWriter& quoted(std::string_view text, size_t max = 80);

  size_t length() const { return length_; }

 private:
  void put(char c);

  char* out_;
  size_t size_;
  size_t length_ = 0;
};

}  // namespace cistern::config
