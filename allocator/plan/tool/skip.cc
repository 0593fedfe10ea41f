// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/tool/skip.h"

#include <algorithm>
#include <iterator>

#include "config/glob.h"
#include "config/parse.h"

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
