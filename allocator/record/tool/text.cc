// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/text.h"

#include <algorithm>
#include <cstdio>

#include "allocator/record/program_code.h"
#include "allocator/record/tool/functions.h"
#include "config/text.h"

namespace cistern::alloc::tool {

std::string printable(std::string_view text) {
  std::string out;
  config::for_each_shown(text, "\uFFFD", [&](std::string_view piece) { out += piece; });
  return out;
}

std::string json(std::string_view text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string exact_json(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t bytes = config::utf8_character(text);
    const std::string_view piece = text.substr(0, std::max<size_t>(bytes, 1));
    const uint32_t code = bytes == 0 ? 0xDC00U + static_cast<unsigned char>(piece[0])
                                     : config::code_point(piece, bytes);
    if (bytes == 0 || !config::is_shown(code)) {
      append(out, "\\u%04x", code);
    } else {
      if (code == '"' || code == '\\') out += '\\';
      out += piece;
    }
    text.remove_prefix(piece.size());
  }
  return out + '"';
}

std::string mib(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::string frame_text(const Recording& recording, const Frame& frame) {
  const std::string& path = recording.names[frame.file];
  if (frame.python()) {
    return printable(recording.names[frame.function] + " (" + path + ":" +
                     std::to_string(frame.line) + ")");
  }
  const auto hex = [](uint64_t number) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
    return std::string(text);
  };
  if (path.empty()) return hex(frame.offset);
  const std::string file = path.substr(path.rfind('/') + 1);
  const Function function = function_at(path, frame.offset);
  if (function.name.empty()) return printable(file + "+" + hex(frame.offset));
  const std::string place = function.place.empty() ? "" : ", " + function.place;
  return printable(function.name + "+" + hex(function.into) + " (" + file + place + ")");
}

std::string site_text(const Recording& recording, uint32_t site) {
  const std::vector<Frame>& frames = recording.sites[site];
  if (frames.empty()) return kUnknown;
  const auto path = [&](const Frame& frame) -> std::string_view {
    return recording.names[frame.file];
  };
  const auto function = [&](const Frame& frame) {
    return function_at(recording.names[frame.file], frame.offset);
  };
  const auto [first, last] = shown_frames(
      frames.data(), static_cast<int>(frames.size()), path,
      [&](const Frame& frame) { return function(frame).wrapper; },
      [&](const Frame& frame) { return function(frame).name.empty(); });
  std::string text;
  for (int i = first; i <= last; ++i) {
    text += (i == first ? "" : " from ") + frame_text(recording, frames[static_cast<size_t>(i)]);
  }
  return text;
}

std::string begin_picture(double width, double height) {
  std::string text;
  append(text, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\">\n", width, height);
  append(text, "<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n", width, height);
  return text;
}

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    const char* written = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : nullptr;
    written == nullptr ? out.push_back(c) : void(out.append(written));
  }
  return out;
}

}  // namespace cistern::alloc::tool
