// SPDX-License-Identifier: Apache-2.0
// What is asked for: the options, and the requests that they select.
#include "allocator/plan/tool/tool.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string_view>

#include "allocator/plan/period.h"
#include "allocator/plan/plan_file.h"
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

namespace {

// Of files the names are whole paths.
bool is_backward(std::string_view name) { return config::names_backward(name, name[0] != '/'); }

class Skipping {
 public:
  Skipping(const Input& input, Skipped& out) : input_(input), out_(out) {
    out_.alone.resize(input.lives.size());
  }

  // Each name is looked at once, however many requests have it.
  template <typename Fits>
  void by_name(std::string text, Fits fits) {
    std::vector<bool> matches;
    for (const Origin& origin : input_.known) {
      matches.push_back(
          std::any_of(origin.names.begin(), origin.names.end(),
                      [&](const std::string& name) { return !name.empty() && fits(name); }));
    }
    add(std::move(text), [&](size_t i) { return !matches.empty() && matches[input_.origins[i]]; });
  }

  void by_size(const config::SizeRange& range) {
    std::string text = std::to_string(range.low);
    if (range.high != range.low) text += '-' + std::to_string(range.high);
    add(text + " bytes", [&](size_t i) {
      return range.low <= input_.lives[i].bytes && input_.lives[i].bytes <= range.high;
    });
  }

 private:
  template <typename Matches>
  void add(std::string text, Matches matches) {
    SkipEntry entry = {.text = std::move(text)};
    for (size_t i = 0; i < input_.lives.size(); ++i) {
      if (!matches(i)) continue;
      ++entry.requests;
      out_.alone[i] = true;
    }
    out_.entries.push_back(std::move(entry));
  }

  const Input& input_;
  Skipped& out_;
};

}  // namespace

bool take_iteration(Input& input, std::string& problem) {
  const std::vector<Lifetime> all = std::move(input.lives);
  const std::vector<uint64_t> streams = std::move(input.streams);
  const std::vector<uint32_t> origins = std::move(input.origins);
  input.lives.clear();
  input.streams.clear();
  input.origins.clear();
  Repeats repeats;
  Begin begin;
  const Requests requests{.lives = all, .origins = streams};
  if (!input.counts_calls || !find_repeats(requests, /*to_the_end=*/false, &repeats) ||
      !find_begin(requests, input.calls, repeats, &begin)) {
    problem = "nothing repeats; value seen \"" + std::to_string(all.size()) +
              " requests\"; allowed: two iterations or more; try: without --period";
    return false;
  }
  const uint64_t end = all[begin.request + repeats.period].from;
  for (uint64_t i = begin.request; i < begin.request + repeats.period; ++i) {
    if (all[i].to < end) {
      input.lives.push_back(all[i]);
      input.streams.push_back(streams[i]);
      if (!origins.empty()) input.origins.push_back(origins[i]);
    } else {
      input.outside.push_back({.from = all[i].from, .bytes = all[i].bytes, .stream = streams[i]});
    }
  }
  input.iteration = true;
  input.before = begin.before;
  input.times = (repeats.to - begin.before) / repeats.period;
  if (!input.lives.empty()) return true;
  problem =
      "nothing to plan; value seen \"an iteration that all its blocks outlive\"; allowed: "
      "blocks that are freed in it; try: without --period";
  return false;
}

bool take_iterations(const Input& input, std::vector<Input>& out, std::string& problem) {
  std::map<uint32_t, Input> threads;
  for (size_t i = 0; i < input.threads.size(); ++i) {
    Input& one = threads[input.threads[i]];
    one.lives.push_back(input.lives[i]);
    one.streams.push_back(input.streams[i]);
    if (!input.origins.empty()) one.origins.push_back(input.origins[i]);
  }
  for (auto& [thread, one] : threads) {
    one.counts_calls = one.of_thread = true;
    one.calls = input.calls;
    one.device = input.device;
    one.known = input.known;
    const size_t requests = one.lives.size();
    std::string ignored;
    if (take_iteration(one, ignored) &&
        2 * one.times * (one.lives.size() + one.outside.size()) >= requests) {
      out.push_back(std::move(one));
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Input& a, const Input& b) {
    return a.times * a.lives.size() > b.times * b.lives.size();
  });
  if (out.size() > kMostPlans) out.resize(kMostPlans);
  if (!out.empty()) return true;
  problem = "no thread repeats itself; value seen \"" + std::to_string(threads.size()) +
            " threads\"; allowed: a recording in which one does half of the time; try: without "
            "--period";
  return false;
}

Skipped skipped_of(const Input& input, const Skip& skip) {
  Skipped out;
  Skipping skipping(input, out);
  for (std::string_view rest = skip.globs; !rest.empty();) {
    const std::string_view glob = config::next_item(rest, ',');
    skipping.by_name(std::string(glob),
                     [=](std::string_view name) { return config::matches_glob(glob, name); });
  }
  if (skip.grads) skipping.by_name("the backward part", is_backward);
  for (size_t i = 0; i < skip.sizes.count; ++i) skipping.by_size(skip.sizes.range[i]);
  return out;
}

std::vector<Lifetime> lives_to_plan(const Input& input, const Skipped& skipped) {
  std::vector<Lifetime> lives = input.lives;
  uint64_t from = UINT64_MAX, to = 0;
  for (const Lifetime& life : lives) {
    from = std::min(from, life.from);
    to = std::max(to, life.to);
  }
  for (size_t i = 0; i < lives.size(); ++i) {
    if (skipped.alone[i]) lives[i].from = from, lives[i].to = to;
  }
  return lives;
}

}  // namespace cistern::alloc::plan
