// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/tool/iteration.h"

#include "allocator/plan/period.h"

namespace cistern::alloc::plan {

bool take_iteration(Input& input, std::string& problem) {
  const std::vector<Lifetime> all = std::move(input.lives);
  const std::vector<uint64_t> streams = std::move(input.streams);
  input.lives.clear();
  input.streams.clear();
  Repeats repeats;
  Begin begin;
  if (!input.counts_calls || !find_repeats(all, /*to_the_end=*/false, &repeats) ||
      !find_begin(all, input.calls, repeats, &begin)) {
    problem = "nothing repeats; value seen \"" + std::to_string(all.size()) +
              " requests\"; allowed: two iterations or more; try: without --period";
    return false;
  }
  const uint64_t end = all[begin.request + repeats.period].from;
  for (uint64_t i = begin.request; i < begin.request + repeats.period; ++i) {
    if (all[i].to < end) {
      input.lives.push_back(all[i]);
      input.streams.push_back(streams[i]);
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

}  // namespace cistern::alloc::plan
