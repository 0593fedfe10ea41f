// SPDX-License-Identifier: Apache-2.0
#include "config/text.h"

namespace cistern::config {

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
