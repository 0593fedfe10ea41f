// SPDX-License-Identifier: Apache-2.0
#include "shim/record/record.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "allocator/base/threads.h"
#include "allocator/record/program_code.h"
#include "shim/nvtx/ranges.h"
#include "shim/process/thread.h"
#include "shim/sites/sites.h"

namespace cistern::shim {
namespace {

int own_range(uint32_t range, char* out, size_t size) {
  const Range own = range_of(range);
  const int before = own.parent == 0 ? 0 : own_range(own.parent, out, size);
  if (static_cast<size_t>(before) >= size) return before;
  return before + std::snprintf(out + before, size - static_cast<size_t>(before), "%s%s",
                                before == 0 ? "" : "/", names().text(own.name));
}

}  // namespace

const char* describe_site(uint32_t site, char* out, size_t size) {
  alloc::Frame frames[alloc::kMostFrames];
  const int count = site == 0 ? 0 : site_frames(site, frames);
  if (count == 0) {
    std::snprintf(out, size, "an unknown call site");
    return out;
  }
  Symbol symbol;
  const auto path = [](const alloc::Frame& frame) { return names().text(frame.file); };
  const auto symbol_of = [&](const alloc::Frame& frame) {
    find_symbol(frame, &symbol);
    return std::string_view(symbol.name);
  };
  const auto wraps = [&](const alloc::Frame& f) { return alloc::is_wrapper(symbol_of(f)); };
  const auto nameless = [&](const alloc::Frame& f) { return symbol_of(f).empty(); };
  const auto [first, last] = alloc::shown_frames(frames, count, path, wraps, nameless);
  auto length = static_cast<size_t>(describe_frame(frames[first], out, size));
  for (int i = first + 1; i <= last; ++i) {
    length += static_cast<size_t>(std::snprintf(out + length, size - length, " from "));
    if (length >= size) break;
    length += static_cast<size_t>(describe_frame(frames[i], out + length, size - length));
  }
  return out;
}

bool describe_level(uint32_t site, int level, char* out, size_t size) {
  alloc::Frame frames[alloc::kMostFrames];
  if (site == 0 || level >= site_frames(site, frames)) return false;
  describe_frame(frames[level], out, size);
  return true;
}

const char* describe_range(uint32_t range, char* out, size_t size) {
  if (range == 0) {
    std::snprintf(out, size, "no range");
  } else {
    own_range(range, out, size);
  }
  return out;
}

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

// Goes through all tallies and keeps the `most` largest, in order.
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
