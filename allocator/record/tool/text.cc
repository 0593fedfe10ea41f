// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/text.h"

#include <cstdio>

#include "allocator/record/program_code.h"
#include "allocator/record/tool/functions.h"
#include "config/shown.h"

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
  uint64_t into = 0;
  const std::string function = function_at(path, frame.offset, &into);
  if (function.empty()) return printable(file + "+" + hex(frame.offset));
  return printable(function + "+" + hex(into) + " (" + file + ")");
}

std::string site_text(const Recording& recording, uint32_t site) {
  const std::vector<Frame>& frames = recording.sites[site];
  if (frames.empty()) return kUnknown;
  const auto path = [&](const Frame& frame) -> std::string_view {
    return recording.names[frame.file];
  };
  const int telling = telling_frame(frames.data(), static_cast<int>(frames.size()), path);
  return frame_text(recording, frames[static_cast<size_t>(telling)]);
}

}  // namespace cistern::alloc::tool
