// SPDX-License-Identifier: Apache-2.0
#include "shim/record/holders.h"

#include <algorithm>
#include <cstdio>

#include "allocator/base/mutex.h"
#include "shim/nvtx/phases.h"
#include "shim/process/names.h"
#include "shim/record/describe.h"
#include "shim/record/watched.h"
#include "shim/sites/sites.h"

namespace cistern::shim {
namespace {

using alloc::Tally;
using alloc::TallyBy;
using alloc::TallyOrder;

constinit alloc::Mutex mutex{};
constinit alloc::Tallies tallies{};

bool next_place(uint32_t from, uint32_t* place, Tally* total) {
  const alloc::LockGuardAtExit guard(mutex);
  if (!guard) return false;
  for (; from < alloc::kPlaces; ++from) {
    if (tallies.total(from).allocations == 0) continue;
    *place = from;
    *total = tallies.total(from);
    return true;
  }
  return false;
}

// Keeps the first `most` in order while it looks at all.
int top(uint32_t place, TallyBy by, TallyOrder order, Holder* out, int most) {
  const alloc::LockGuardAtExit guard(mutex);
  int count = 0;
  if (!guard) return count;
  tallies.for_each(place, by, [&](uint32_t number, const Tally& tally) {
    const uint64_t mine = figure_of(tally, order);
    if (mine == 0) return;
    int at = count;
    while (at > 0 && figure_of(out[at - 1].tally, order) < mine) --at;
    if (at == most) return;
    count = std::min(count + 1, most);
    std::copy_backward(out + at, out + count - 1, out + count);
    out[at] = {number, tally};
  });
  return count;
}

void name(TallyBy by, uint32_t number, char* out, size_t size) {
  by == TallyBy::site ? describe_site(number, out, size) : describe_range(number, out, size);
}

bool phase(uint32_t n, const char** name, PhaseFigures* out) {
  if (n > phase_names()) return false;
  *out = phase_figures(n);
  *name = names().text(out->name);
  return true;
}

constexpr HoldersReport kReport = {next_place, top, name, describe_level, phase};

}  // namespace

void holders_allocated(const alloc::Event& event) {
  const alloc::LockGuard guard(mutex);
  tallies.allocated(event);
}

bool holders_freed(const alloc::Event& event, alloc::Event* block) {
  const alloc::LockGuard guard(mutex);
  return tallies.freed(event, block);
}

void holders_not_freed(const alloc::Event& block) {
  const alloc::LockGuard guard(mutex);
  tallies.not_freed(block);
}

uint64_t holders_context_ended(const alloc::Event& event) {
  const alloc::LockGuard guard(mutex);
  return tallies.context_ended(event);
}

const HoldersReport* holders_report() { return watching(kWatchTallies) ? &kReport : nullptr; }

const char* describe_holders(uint32_t device, char* out, size_t size) {
  constexpr int kMost = 10;
  Holder most[kMost];
  char site[80];
  *out = '\0';
  if (!watching(kWatchTallies) || !sites_on()) return out;
  const int count = top(device, TallyBy::site, TallyOrder::end, most, kMost);
  size_t length = 0;
  for (int i = 0; i < count && length < size; ++i) {
    length += static_cast<size_t>(std::snprintf(
        out + length, size - length, "%s %.1f MiB %s", i == 0 ? "; most is held by" : ",",
        static_cast<double>(most[i].tally.live_bytes) / (1 << 20),
        describe_site(most[i].number, site, sizeof site)));
  }
  return out;
}

}  // namespace cistern::shim
