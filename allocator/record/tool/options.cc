// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/analysis.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

namespace cistern::alloc::tool {
namespace {

constexpr const char* kTry = "cistern help";

std::string line(const std::string& what, const std::string& seen, const std::string& allowed,
                 const std::string& remedy) {
  return what + "; value seen \"" + seen + "\"; allowed: " + allowed + "; try: " + remedy;
}

// Bytes may have a unit: 4K, 1M, 2G.
bool read_number(const std::string& text, bool units, uint64_t& out) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, out);
  if (error != std::errc() || rest == text.data()) return false;
  if (rest == end) return true;
  const char* unit = std::strchr("KMG", *rest);
  if (!units || rest + 1 != end || unit == nullptr) return false;
  const int shift = 10 * (1 + static_cast<int>(unit - std::strchr("KMG", 'K')));
  if (out > UINT64_MAX >> shift) return false;
  out <<= shift;
  return true;
}

bool read_seconds(const std::string& text, uint64_t& out_ns) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  constexpr double kMost = 1e9;
  if (text.empty() || *end != '\0' || !std::isfinite(seconds) || seconds < 0 || seconds > kMost) {
    return false;
  }
  out_ns = static_cast<uint64_t>(seconds * 1e9);
  return true;
}

// The index of a word, or -1.
int index_of(const std::string& word, std::span<const char* const> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (word == words[i]) return static_cast<int>(i);
  }
  return -1;
}

std::string listed(std::span<const char* const> words) {
  std::string list;
  for (const char* word : words) list += (list.empty() ? "" : ", ") + std::string(word);
  return list;
}

class Words {
 public:
  Words(Options& out, std::string& problem) : out_(out), problem_(problem) {}

  // Whether the option takes no value.
  bool alone(const std::string& name) {
    const int view = index_of(name, kViews);
    if (view < 0 || static_cast<View>(view) == View::folded) return false;
    const View before = std::exchange(out_.view, static_cast<View>(view));
    const auto are = [&](View one, View other) { return before == one && out_.view == other; };
    if (are(View::events, View::json) || are(View::json, View::events)) {
      out_.view = View::json_events;
    }
    return true;
  }

  bool takes_value(const std::string& name) const {
    static constexpr const char* kNames[] = {"by",        "sort",      "top",  "folded", "device",
                                             "thread",    "memory",    "site", "range",  "phase",
                                             "min-bytes", "max-bytes", "from", "to",     "svg"};
    return index_of(name, kNames) >= 0;
  }

  bool set(const std::string& name, const std::string& value) {
    if (name == "by") return word(name, value, kBys, out_.by);
    if (name == "sort") return word(name, value, kSorts, out_.sort);
    if (name == "folded") {
      out_.view = View::folded;
      return word(name, value, kSorts, out_.sort);
    }
    if (name == "memory") return word(name, value, kMemoryNames, out_.memory);
    if (name == "svg") return out_.svg = value, true;
    if (name == "site") return out_.site = value, true;
    if (name == "range") return out_.range = value, true;
    if (name == "phase") return out_.phase = value, true;
    if (name == "device") return number(name, value, out_.device);
    if (name == "thread") return number(name, value, out_.thread);
    if (name == "top") return number(name, value, out_.top);
    if (name == "min-bytes") return bytes(name, value, out_.min_bytes);
    if (name == "max-bytes") return bytes(name, value, out_.max_bytes);
    return seconds(name, value, name == "from" ? out_.from_ns : out_.to_ns);
  }

 private:
  bool refuse(const std::string& name, const std::string& value, const std::string& allowed,
              const std::string& example) {
    problem_ = line("--" + name + " cannot be used", value, allowed, "--" + name + " " + example);
    return false;
  }

  template <typename T>
  bool word(const std::string& name, const std::string& value, std::span<const char* const> words,
            std::optional<T>& out) {
    const int index = index_of(value, words);
    if (index < 0) return refuse(name, value, listed(words), words[0]);
    out = static_cast<T>(index);
    return true;
  }

  bool number(const std::string& name, const std::string& value, std::optional<uint64_t>& out) {
    uint64_t read = 0;
    if (!number(name, value, read)) return false;
    out = read;
    return true;
  }
  bool number(const std::string& name, const std::string& value, uint64_t& out) {
    return read_number(value, false, out) || refuse(name, value, "a number", "1");
  }
  bool bytes(const std::string& name, const std::string& value, uint64_t& out) {
    return read_number(value, true, out) || refuse(name, value, "bytes, also with K, M or G", "1M");
  }
  bool seconds(const std::string& name, const std::string& value, uint64_t& out) {
    return read_seconds(value, out) || refuse(name, value, "seconds since it began", "2.5");
  }

  Options& out_;
  std::string& problem_;
};

}  // namespace

bool read_options(int argc, char** argv, Options& out, std::string& problem) {
  Words words(out, problem);
  bool only_files = false;
  for (int i = 0; i < argc; ++i) {
    const std::string given = argv[i];
    if (only_files || !given.starts_with("--")) {
      if (!out.file.empty()) {
        problem = line("more than one file", given, "one recording", kTry);
        return false;
      }
      out.file = given;
      continue;
    }
    only_files = given == "--";
    if (only_files) continue;
    const size_t equals = given.find('=');
    const std::string name = given.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (equals == std::string::npos && words.alone(name)) continue;
    if (!words.takes_value(name)) {
      problem = line("unknown option", given, "the options that the help lists", kTry);
      return false;
    }
    if (equals == std::string::npos && i + 1 == argc) {
      problem = line("an option without its value", given, given + " VALUE", kTry);
      return false;
    }
    const std::string value = equals == std::string::npos ? argv[++i] : given.substr(equals + 1);
    if (!words.set(name, value)) return false;
  }
  if (!out.file.empty()) return true;
  problem = line("no recording given", "", "cistern trace FILE [OPTION...]", kTry);
  return false;
}

}  // namespace cistern::alloc::tool
