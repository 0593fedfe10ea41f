// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/picture.h"

#include "allocator/record/tool/text.h"

namespace cistern::alloc::tool {
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
