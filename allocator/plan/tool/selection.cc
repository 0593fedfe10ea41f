// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/tool/tool.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "allocator/plan/period.h"
#include "allocator/plan/plan_file.h"
#include "config/text.h"

namespace cistern::alloc::plan {
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
