// SPDX-License-Identifier: Apache-2.0
// The report's advice and its writer. The report ends with advice: frameworks that also pool the
// program's memory, and at most two settings that would have helped this run. Both follow from the
// report's figures alone. A run without problems gets neither. Any thread.
//
// A function that writes a part of the report mostly writes both forms, text and JSON, side by
// side: the writer ignores calls for the form that is not wanted. If the forms have little in
// common, each has a function of its own. The writer is used once, at exit, by the thread that ends
// the process.
#pragma once

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string_view>

#include "allocator/base/ledger.h"
#include "config/known.h"
#include "config/policy.h"
#include "config/text.h"
#include "shim/process/own_file.h"
#include "shim/process/report_figures.h"

namespace cistern::shim {

// A set of frameworks.
class Frameworks {
 public:
  void add(const config::Framework* framework);
  std::span<const config::Framework* const> list() const { return {all_, count_}; }

 private:
  static constexpr size_t kMost = 4;
  const config::Framework* all_[kMost] = {};
  size_t count_ = 0;
};

struct Hint {
  const char* about;  // limit, ipc, bound, free_waits or sizes
  char text[400];     // what was seen, and the setting that helps
};

// The first hints are the most important ones; further ones are dropped.
class Advice {
 public:
  Frameworks frameworks;
  std::span<const Hint> list() const { return {hints_, count_}; }

  [[gnu::format(printf, 3, 4)]] void hint(const char* about, const char* format, ...);

 private:
  static constexpr size_t kMost = 2;
  Hint hints_[kMost] = {};
  size_t count_ = 0;
};

// `loaded`: frameworks that the process has loaded. They are reported unless the figures show that
// they do not pool.
Advice advise(const ProcessReport& process, const config::Policy& policy, const Frameworks& loaded);

// kCount keys of JSON, separated by blanks. A text with another number of keys does not compile.
template <size_t kCount>
struct Keys {
  consteval Keys(const char* keys) : text(keys) {  // NOLINT(google-explicit-constructor)
    constexpr auto kBlanks = static_cast<ptrdiff_t>(kCount) - 1;
    if (std::count(text.begin(), text.end(), ' ') != kBlanks) std::abort();  // no constant
  }
  std::string_view text;
};

// Buffered text for a file. One print() writes at most kMostAtOnce bytes; the rest is cut off.
class Writer {
 public:
  static constexpr size_t kMostAtOnce = 8 * 1024;

  void begin(const OwnFile* file, bool json) {
    file_ = file;
    json_ = json;
    length_ = 0;
    written_ = true;
  }

  bool json() const { return json_; }

  // print() writes in both forms, text() only in the text form, json() only in JSON.
  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_list(format, arguments);
    va_end(arguments);
  }
  [[gnu::format(printf, 2, 3)]] void text(const char* format, ...) {
    if (json_) return;
    va_list arguments;
    va_start(arguments, format);
    print_list(format, arguments);
    va_end(arguments);
  }
  [[gnu::format(printf, 2, 3)]] void json(const char* format, ...) {
    if (!json_) return;
    va_list arguments;
    va_start(arguments, format);
    print_list(format, arguments);
    va_end(arguments);
  }

  // JSON: "key": value, ... between two texts.
  template <typename... Values>
  void numbers(const char* before, Keys<sizeof...(Values)> of_values, const char* after,
               Values... values) {
    std::string_view keys = of_values.text;
    json("%s", before);
    for (const uint64_t value : {uint64_t{values}...}) {
      const std::string_view key = config::next_item(keys, ' ');
      json("\"%.*s\": %lu%s", static_cast<int>(key.size()), key.data(), value,
           keys.empty() ? "" : ", ");
    }
    json("%s", after);
  }

  // Text form only. Replaces unprintable characters (config/text.h), so that a setting or a name
  // cannot break the line.
  void plain(std::string_view text) {
    if (json_) return;
    config::for_each_shown(text, "?", [this](std::string_view piece) { piece_of(piece); });
  }

  // JSON only: a string, escaped. Settings and names may hold any byte, and may have been cut off.
  void quoted(std::string_view text) {
    if (!json_) return;
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

  // Writes the rest. Whether everything was written; if not, errno says why.
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

  [[gnu::format(printf, 2, 0)]] void print_list(const char* format, va_list arguments) {
    if (sizeof text_ - length_ < kMostAtOnce) flush();
    const int n = vsnprintf(text_ + length_, sizeof text_ - length_, format, arguments);
    if (n > 0) length_ = std::min(length_ + static_cast<size_t>(n), sizeof text_ - 1);
  }

  const OwnFile* file_ = nullptr;
  bool json_ = false;
  char text_[32 * 1024] = {};
  size_t length_ = 0;
  bool written_ = true;
  int error_ = 0;
};

// The run that a report describes.
struct Run {
  char program[PATH_MAX] = "";
  char host[256] = "";
  char ended[32] = "";  // UTC, as in ISO 8601

  Run();  // report.cc
};

// The whole report, and its parts in files of their own.
void compose(Writer& writer, const ProcessReport& process, const Advice& advice);
void write_device(Writer& writer, const DeviceReport& device, bool first);
void write_holders(Writer& writer, const HoldersReport& holders);

}  // namespace cistern::shim
