// SPDX-License-Identifier: Apache-2.0
#include "shim/nvtx/message.h"

#include <cstring>
#include <string_view>

#include "shim/process/names.h"

namespace cistern::shim {
namespace {

// A name as it is put together; what is beyond the longest is left out.
class Text {
 public:
  void add(std::string_view text) {
    text = text.substr(0, sizeof text_ - used_);
    std::memcpy(text_ + used_, text.data(), text.size());
    used_ += text.size();
  }

  // Whole characters only.
  void add(const wchar_t* text) {
    for (; *text != 0; ++text) {
      char bytes[4];
      const std::string_view one = utf8(static_cast<uint32_t>(*text), bytes);
      if (used_ + one.size() > sizeof text_) return;
      add(one);
    }
  }

  uint32_t number() const { return names().number({text_, used_}); }

 private:
  static std::string_view utf8(uint32_t c, char (&out)[4]) {
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    if (surrogate || c > 0x10FFFF) return "?";
    if (c < 0x80) {
      out[0] = static_cast<char>(c);
      return {out, 1};
    }
    const unsigned bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (unsigned i = bytes - 1; i > 0; --i, c >>= 6) out[i] = static_cast<char>(0x80 | (c & 0x3F));
    out[0] = static_cast<char>((0xF00u >> bytes & 0xF0u) | c);
    return {out, bytes};
  }

  char text_[alloc::Names::kLongest];
  size_t used_ = 0;
};

void add_domain(uint32_t domain, Text& text) {
  if (domain == 0) return;
  text.add(names().text(domain));
  text.add("/");
}

[[gnu::noinline]] uint32_t name_in_domain(uint32_t domain, const char* message) {
  Text text;
  add_domain(domain, text);
  text.add(message);
  return text.number();
}

}  // namespace

uint32_t message_name(uint32_t domain, const char* message) {
  if (message == nullptr) message = "";
  return domain == 0 ? names().number(message) : name_in_domain(domain, message);
}

[[gnu::noinline]] uint32_t message_name(uint32_t domain, const wchar_t* message) {
  Text text;
  add_domain(domain, text);
  text.add(message == nullptr ? L"" : message);
  return text.number();
}

uint32_t message_name(uint32_t domain, const nvtxEventAttributes_t* event) {
  if (event != nullptr && event->messageType == NVTX_MESSAGE_TYPE_ASCII) {
    return message_name(domain, event->message.ascii);
  }
  if (event != nullptr && event->messageType == NVTX_MESSAGE_TYPE_UNICODE) {
    return message_name(domain, event->message.unicode);
  }
  return message_name(domain, "");
}

}  // namespace cistern::shim
