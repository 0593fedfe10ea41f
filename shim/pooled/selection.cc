// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/selection.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "allocator/base/os.h"
#include "allocator/record/names.h"
#include "config/text.h"
#include "shim/nvtx/ranges.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"
#include "shim/sites/sites.h"

namespace cistern::shim {
namespace {

// One pattern: a glob of the user's, or a whole built-in list.
struct Entry {
  const char* setting;
  std::string_view text;
  enum class Kind : uint8_t { glob, backward, operators } kind;
  bool keeps_out;  // false: lets in
  std::atomic<uint64_t> matched;
};

// A set of entries: bit i is entry i. The highest bit marks an answer as known.
using Entries = uint64_t;
constexpr int kMostEntries = 63;
constexpr Entries kKnown = Entries{1} << kMostEntries;
constexpr uint32_t kMostRanges = 1 << 16;  // whose answers are kept

constinit Entry entries[kMostEntries]{};
constinit int entry_count = 0;
constinit bool lets_only_some_in = false;
constinit std::atomic<std::atomic<Entries>*> of_sites{nullptr}, of_ranges{nullptr};
constinit std::atomic<bool> said_no_stacks{false};

// The entries for which there is no room: how many, and the first of them.
struct LeftOut {
  static constexpr int kNamed = 3;
  int count = 0;
  struct {
    const char* setting;
    std::string_view text;
  } first[kNamed];
};

void add_entry(const char* setting, std::string_view text, Entry::Kind kind, bool keeps_out,
               LeftOut* left_out) {
  if (entry_count == kMostEntries) {
    if (left_out->count < LeftOut::kNamed) left_out->first[left_out->count] = {setting, text};
    ++left_out->count;
    return;
  }
  Entry& entry = entries[entry_count++];
  entry.setting = setting;
  entry.text = text;
  entry.kind = kind;
  entry.keeps_out = keeps_out;
}

[[gnu::cold]] void tell_left_out(const LeftOut& left_out) {
  char names[400] = "";
  size_t length = 0;
  const int named = std::min(left_out.count, LeftOut::kNamed);
  const char* last = "";
  for (int i = 0; i < named; ++i) {
    const auto& [setting, text] = left_out.first[i];
    const bool another = std::strcmp(setting, last) != 0;
    length += static_cast<size_t>(
        snprintf(names + length, sizeof names - length, "%s%s%s'%.*s'", i == 0 ? "" : ", ",
                 another ? setting : "", another ? " " : "",
                 static_cast<int>(std::min<size_t>(text.size(), 60)), text.data()));
    last = setting;
  }
  if (left_out.count > named) {
    snprintf(names + length, sizeof names - length, " and %d more", left_out.count - named);
  }
  log(config::LogLevel::kWarn,
      "too many call sites and ranges; value seen: %d entries in all settings; allowed: %d; %s do "
      "nothing; remove entries, or join them with *",
      kMostEntries + left_out.count, kMostEntries, names);
}

void add_globs(const char* setting, const char* list, bool keeps_out, LeftOut* left_out) {
  std::string_view rest = list;
  for (bool more = true; more;) {
    more = rest.find(',') != std::string_view::npos;
    add_entry(setting, config::next_item(rest, ','), Entry::Kind::glob, keeps_out, left_out);
  }
}

// `function`: the text is a range or a function, not a file.
bool entry_matches(const Entry& entry, std::string_view text, bool function) {
  const auto is_named = [=](std::string_view op) { return names_operator(text, op); };
  switch (entry.kind) {
    case Entry::Kind::glob:
      return config::matches_glob(entry.text, text);
    case Entry::Kind::backward:
      return config::names_backward(text, function);
    case Entry::Kind::operators:
      return function &&
             std::any_of(std::begin(kInplaceOperators), std::end(kInplaceOperators), is_named);
  }
  return false;
}

Entries matching(const char* text, bool function) {
  if (text[0] == '\0') return 0;
  Entries all = 0;
  for (int i = 0; i < entry_count; ++i) {
    if (entry_matches(entries[i], text, function)) all |= Entries{1} << i;
  }
  return all;
}

// A file is matched by its whole path and by its name alone.
Entries matching_file(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return matching(path, false) | (slash == nullptr ? 0 : matching(slash + 1, false));
}

Entries match_site(uint32_t site) {
  alloc::Frame frames[alloc::kMostFrames];
  const int count = site_frames(site, frames);
  Entries all = 0;
  for (int i = 0; i < count; ++i) {
    all |= matching_file(names().text(frames[i].file));
    if (frames[i].python()) {
      all |= matching(names().text(frames[i].function), true);
      continue;
    }
    FunctionName function;
    find_function(frames[i], &function);
    const char* symbol = function.symbol.name;
    all |= matching(function.readable, true);
    if (std::strcmp(symbol, function.readable) != 0) all |= matching(symbol, true);
  }
  return all;
}

Entries match_ranges(uint32_t range) {
  Entries all = 0;
  for (; range != 0; range = range_of(range).parent) {
    const char* name = names().text(range_of(range).name);
    all |= matching(name, true);
    // For "domain/message", the message alone is matched as well.
    if (const char* slash = std::strchr(name, '/')) all |= matching(slash + 1, true);
  }
  return all;
}

// The cached answer for a site or a range, or a new one. Two threads may compute it at the same
// time.
template <typename Match>
Entries kept(std::atomic<std::atomic<Entries>*>& table, uint32_t size, uint32_t number,
             Match match) {
  if (number == 0) return 0;
  std::atomic<Entries>* answers = table.load(std::memory_order_acquire);
  if (answers == nullptr || number >= size) [[unlikely]]
    return match(number);
  Entries answer = answers[number].load(std::memory_order_relaxed);
  if (answer == 0) [[unlikely]] {
    answer = match(number) | kKnown;
    answers[number].store(answer, std::memory_order_relaxed);
  }
  return answer & ~kKnown;
}

[[gnu::cold]] void say_no_stacks() {
  const char* why = why_no_unwinder();
  if (why == nullptr || said_no_stacks.exchange(true)) return;
  log(config::LogLevel::kWarn,
      "call stacks are not available: %s; %s matches NVTX ranges only; install libunwind8", why,
      entries[0].setting);
}

std::atomic<Entries>* make_table(uint32_t size) {
  return static_cast<std::atomic<Entries>*>(alloc::os::map(size * sizeof(std::atomic<Entries>)));
}

constinit std::atomic<uint64_t> pooled{
    0};  // of the chosen sizes so far, at most CISTERN_POOL_FIRST

bool has_chosen_size(uint64_t bytes) {
  const auto& chosen = policy().only_sizes;
  if (!chosen.set) return true;
  const config::SizeRange* ranges = chosen.value.range;
  return std::any_of(ranges, ranges + chosen.value.count, [bytes](const config::SizeRange& range) {
    return range.low <= bytes && bytes <= range.high;
  });
}

bool among_the_first() {
  const auto& first = policy().pool_first;
  if (!first.set) return true;
  uint64_t before = pooled.load(std::memory_order_relaxed);
  while (before < first.value && !pooled.compare_exchange_weak(before, before + 1)) {
  }
  return before < first.value;
}

}  // namespace

void open_chosen_sites(const config::Policy& policy) {
  if (!policy.chooses_sites()) return;
  LeftOut left_out;
  if (policy.skip_opt_set.set) {
    add_globs("CISTERN_SKIP_OPT_SET", policy.skip_opt_set.value, true, &left_out);
  }
  if (policy.skip_grads.value) {
    add_entry("CISTERN_SKIP_GRADS", "the backward part", Entry::Kind::backward, true, &left_out);
  }
  if (policy.enable_inplace_whitelist.value) {
    add_entry("FLAGS_enable_inplace_whitelist", "the 19 operators", Entry::Kind::operators, true,
              &left_out);
  }
  lets_only_some_in = policy.only_sites.set;
  if (lets_only_some_in) add_globs("CISTERN_ONLY_SITES", policy.only_sites.value, false, &left_out);
  if (left_out.count != 0) tell_left_out(left_out);
  of_sites.store(make_table(alloc::CallSites::kMostSites + 1));
  of_ranges.store(make_table(kMostRanges));
  switch_sites_on();
}

bool site_is_pooled() {
  if (entry_count == 0) return true;
  const uint32_t site = this_thread.site != 0 ? this_thread.site : capture_site();
  const uint32_t range = this_thread.range != 0 ? this_thread.range : current_range();
  if (site == 0) [[unlikely]]
    say_no_stacks();
  Entries found = kept(of_sites, alloc::CallSites::kMostSites + 1, site, match_site) |
                  kept(of_ranges, kMostRanges, range, match_ranges);
  bool let_in = !lets_only_some_in, kept_out = false;
  for (; found != 0; found &= found - 1) {
    Entry& entry = entries[__builtin_ctzll(found)];
    entry.matched.fetch_add(1, std::memory_order_relaxed);
    (entry.keeps_out ? kept_out : let_in) = true;
  }
  return let_in && !kept_out;
}

bool chosen_sites_entry(int index, SiteEntry* out) {
  if (index >= entry_count) return false;
  const Entry& entry = entries[index];
  *out = {entry.setting, entry.text, entry.matched.load(std::memory_order_relaxed)};
  return true;
}

bool selected(uint64_t bytes) {
  return has_chosen_size(bytes) && site_is_pooled() && among_the_first();
}

// --- operator names ---

namespace {

bool is_small(char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9'); }
bool is_capital(char c) { return 'A' <= c && c <= 'Z'; }
bool in_word(char c) { return is_small(c) || is_capital(c); }
char small(char c) { return is_capital(c) ? static_cast<char>(c - 'A' + 'a') : c; }

// Whether a word begins, or ends, at text[at].
bool is_boundary(std::string_view text, size_t at) {
  if (at == 0 || at == text.size()) return true;
  const char before = text[at - 1], behind = text[at];
  return !in_word(before) || !in_word(behind) || (is_small(before) && is_capital(behind));
}

// In the text, two words of an operator are separated by one other character, or by none.
bool named_at(std::string_view text, size_t at, std::string_view op) {
  if (!is_boundary(text, at)) return false;
  for (const char c : op) {
    if (c == '_') {
      if (at < text.size() && !in_word(text[at])) {
        ++at;
      } else if (!is_boundary(text, at)) {
        return false;
      }
    } else {
      if (at == text.size() || small(text[at]) != c) return false;
      ++at;
    }
  }
  return is_boundary(text, at);
}

}  // namespace

bool names_operator(std::string_view text, std::string_view op) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (named_at(text, at, op)) return true;
  }
  return false;
}

}  // namespace cistern::shim
