// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/tool/tool.h"

#include <bit>
#include <charconv>
#include <cstdlib>

#include "config/text.h"

namespace cistern::alloc::plan {
namespace {

constexpr uint64_t kMostAlignment = uint64_t{1} << 30;

bool refuse(std::string& problem, const std::string& what, const std::string& seen,
            const std::string& allowed) {
  problem = what + "; value seen \"" + seen + "\"; allowed: " + allowed + "; try: cistern help";
  return false;
}

bool read_number(const std::string& text, uint64_t& out) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && rest == end;
}

bool set_memory(const std::string& value, Memory& out, std::string& problem) {
  std::string names;
  for (int i = 0; i < kMemories; ++i) {
    if (value == kMemoryNames[i]) return out = static_cast<Memory>(i), true;
    names += (i == 0 ? "" : ", ") + std::string(kMemoryNames[i]);
  }
  return refuse(problem, "--memory cannot be used", value, names);
}

bool set_period(const std::string& value, Options& out, std::string& problem) {
  out.iteration = value == "iteration";
  out.threads = value == "thread";
  return out.iteration || out.threads || value == "run" ||
         refuse(problem, "--period cannot be used", value, "run, iteration, thread");
}

bool set_skip(const std::string& value, std::string& globs, std::string& problem) {
  if (!config::is_glob_list(value)) {
    return refuse(problem, "--skip cannot be used", value, "patterns separated by commas");
  }
  globs += (globs.empty() ? "" : ",") + value;
  return true;
}

bool set_sizes(const std::string& value, config::SizeRanges& out, std::string& problem) {
  return config::parse_size_ranges(value, out) ||
         refuse(problem, "--skip-sizes cannot be used", value, "sizes or ranges, as 1M-64M,256K");
}

bool set_level(const std::string& value, unsigned& out, std::string& problem) {
  out = value == "0" ? 0 : 1;
  return value == "0" || value == "1" || refuse(problem, "--level cannot be used", value, "0 or 1");
}

bool set_seconds(const std::string& value, std::optional<double>& out, std::string& problem) {
  char* end = nullptr;
  const double seconds = std::strtod(value.c_str(), &end);
  out = seconds;
  if (*end == '\0' && seconds >= 0 && seconds <= Options::kMostSeconds) return true;
  return refuse(problem, "--seconds cannot be used", value, "seconds from 0 to 1000000");
}

bool set(const std::string& name, const std::string& value, Options& out, std::string& problem) {
  if (value.empty()) return refuse(problem, "an option without its value", name, name + " VALUE");
  uint64_t number = 0;
  if (name == "-o" || name == "--output") return out.out = value, true;
  if (name == "--last") return out.last = value, true;
  if (name == "--svg") return out.svg = value, true;
  if (name == "--period") return set_period(value, out, problem);
  if (name == "--memory") return set_memory(value, out.wanted.memory, problem);
  if (name == "--level") return set_level(value, out.level, problem);
  if (name == "--skip") return set_skip(value, out.wanted.skip.globs, problem);
  if (name == "--skip-sizes") return set_sizes(value, out.wanted.skip.sizes, problem);
  if (name == "--seconds") return set_seconds(value, out.seconds, problem);
  if (!read_number(value, number)) {
    return refuse(problem, name + " cannot be used", value, "a whole number");
  }
  if (name == "--device") return out.wanted.device = number, true;
  if (name == "--steps") return out.steps = number, true;
  if (std::has_single_bit(number) && number <= kMostAlignment) return out.alignment = number, true;
  return refuse(problem, "--alignment cannot be used", value, "a power of two up to 2^30");
}

bool is_known(const std::string& name) {
  for (const char* known :
       {"-o", "--output", "--last", "--svg", "--period", "--memory", "--seconds", "--device",
        "--steps", "--alignment", "--level", "--skip", "--skip-sizes"}) {
    if (name == known) return true;
  }
  return false;
}

// Those that take no value.
bool set_switch(const std::string& given, Options& out) {
  if (given == "--print-log") return out.wanted.log = true;
  return given == "--skip-grads" && (out.wanted.skip.grads = true);
}

// What cannot be had together.
bool fits_together(const Options& options, std::string& problem) {
  if (options.threads &&
      (!options.svg.empty() || !options.last.empty() || options.out.ends_with(".csv"))) {
    return refuse(problem, "--period thread cannot be used with this", "--svg, --last or a table",
                  "-o PLAN");
  }
  return options.level != 0 || options.last.empty() ||
         refuse(problem, "--level 0 cannot be used with this", "--last", "-o PLAN");
}

}  // namespace

bool read_options(int argc, char** argv, Options& out, std::string& problem) {
  for (int i = 0; i < argc; ++i) {
    const std::string given = argv[i];
    if (!given.starts_with('-') || given.size() == 1) {
      if (!out.file.empty()) return refuse(problem, "more than one file", given, "one recording");
      out.file = given;
      continue;
    }
    if (set_switch(given, out)) continue;
    const size_t equals = given.starts_with("--") ? given.find('=') : std::string::npos;
    const std::string name = given.substr(0, equals);
    if (!is_known(name)) {
      return refuse(problem, "unknown option", given, "the options that the help lists");
    }
    std::string value;
    if (equals != std::string::npos) {
      value = given.substr(equals + 1);
    } else if (i + 1 < argc) {
      value = argv[++i];
    }
    if (!set(name, value, out, problem)) return false;
  }
  if (!fits_together(out, problem)) return false;
  return !out.file.empty() ||
         refuse(problem, "no recording given", "", "cistern plan FILE [-o PLAN] [OPTION...]");
}

}  // namespace cistern::alloc::plan
