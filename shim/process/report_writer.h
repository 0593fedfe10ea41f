// SPDX-License-Identifier: Apache-2.0
// The writer of both forms of the report (report_text.cc, report_json.cc). Used once, at exit, by
// the thread that ends the process.
#pragma once

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "allocator/base/ledger.h"
#include "config/text.h"
#include "shim/process/advice.h"
#include "shim/process/own_file.h"
#include "shim/process/report_figures.h"

namespace cistern::shim {

// Text on its way to a file. One print() is at most kMostAtOnce bytes; what is beyond is cut off.
class Writer {
 public:
  static constexpr size_t kMostAtOnce = 8 * 1024;

  void begin(const OwnFile* file) {
    file_ = file;
    length_ = 0;
    written_ = true;
  }

  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...) {
    if (sizeof text_ - length_ < kMostAtOnce) flush();
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text_ + length_, sizeof text_ - length_, format, arguments);
    va_end(arguments);
    if (n > 0) length_ = std::min(length_ + static_cast<size_t>(n), sizeof text_ - 1);
  }

  // Of the text form, whose lines stay lines whatever settings and names hold.
  void plain(std::string_view text) {
    config::for_each_shown(text, "?", [this](std::string_view piece) { piece_of(piece); });
  }

  // A JSON string, escaped: settings and names may hold any byte, and may have been cut off.
  void quoted(std::string_view text) {
    print("\"");
    while (!text.empty()) {
      const size_t bytes = config::utf8_character(text);
      const uint32_t code = bytes == 0 ? 0xFFFD : config::code_point(text, bytes);
      if (bytes == 0 || !config::is_shown(code)) {
        print("\\u%04x", code);
      } else {
        if (code == '"' || code == '\\') print("\\");
        piece_of(text.substr(0, bytes));
      }
      text.remove_prefix(bytes == 0 ? 1 : bytes);
    }
    print("\"");
  }

  // Whether everything was written; else errno says why.
  bool end() {
    flush();
    if (!written_) errno = error_;
    return written_;
  }

 private:
  void piece_of(std::string_view text) {
    print("%.*s", static_cast<int>(text.size()), text.data());
  }

  void flush() {
    if (written_ && !file_->write_patiently(text_, length_)) {
      written_ = false;
      error_ = errno;
    }
    length_ = 0;
  }

  const OwnFile* file_ = nullptr;
  char text_[32 * 1024] = {};
  size_t length_ = 0;
  bool written_ = true;
  int error_ = 0;
};

// Which run a report is of.
struct Run {
  char program[PATH_MAX] = "";
  char host[256] = "";
  char ended[32] = "";  // UTC, as in ISO 8601

  Run();  // report.cc
};

// What the process holds of a device, by kind: the pools, then the kinds of MemoryKind in its
// order.
inline constexpr const char* kKinds[] = {"pools",          "direct",   "arrays",
                                         "stream-ordered", "physical", "managed"};
static_assert(std::size(kKinds) == 1 + alloc::kMemoryKinds);

inline uint64_t taken(const alloc::Ledger& l, size_t kind) {
  return kind == 0 ? l.reserved.get() : l.taken[kind - 1].get();
}
inline uint64_t taken_peak(const alloc::Ledger& l, size_t kind) {
  return kind == 0 ? l.reserved_peak.get() : l.taken_peak[kind - 1].get();
}

// The static memory mode that a strategy is.
inline int mode_of(alloc::StrategyKind strategy) {
  if (strategy == alloc::StrategyKind::unit_arena) return 4;
  return strategy == alloc::StrategyKind::expandable ? 3 : 2;
}

// What graphs need less as they share arenas.
inline uint64_t gain_of_arena(const alloc::Ledger& l) {
  const uint64_t sum = l.graph_bytes.get(), peak = l.arena_peak.get();
  return sum > peak ? sum - peak : 0;
}

// The whole report in one of its forms.
void compose_text(Writer& writer, const ProcessReport& process, const Advice& advice);
void compose_json(Writer& writer, const ProcessReport& process, const Advice& advice);
// Their part about who holds memory (report_holders.cc).
void text_holders(Writer& writer, const HoldersReport& holders);
void json_holders(Writer& writer, const HoldersReport& holders);

}  // namespace cistern::shim
