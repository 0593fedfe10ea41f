// SPDX-License-Identifier: Apache-2.0
#include "watch/shadow.h"

#include <algorithm>

namespace simcuda {
namespace {

bool may_be_swapped(Touch one, Touch other) { return one == other && one != Touch::kWrite; }

// What conflicts with the earlier touch and comes after the later one conflicts with that too.
bool replaces(const Record& later, const Record& earlier, const VectorClock& clock) {
  const bool stands_for = later.touch == Touch::kWrite || later.touch == earlier.touch;
  return stands_for && clock.covers(earlier.at);
}

void add_conflict(std::vector<Conflict>& all, uint64_t start, uint64_t end, const Record& earlier) {
  for (Conflict& known : all) {
    if (known.earlier.by != earlier.by || known.earlier.touch != earlier.touch) continue;
    if (known.address + known.bytes == start) known.bytes = end - known.address;
    return;
  }
  all.push_back({start, end - start, earlier});
}

}  // namespace

Shadow::Segments::iterator Shadow::cut(uint64_t address) {
  const auto after = segments_.lower_bound(address);
  if (after == segments_.begin()) return after;
  const auto before = std::prev(after);
  if (before->second.end <= address) return after;
  const auto rest =
      segments_.emplace_hint(after, address, Segment{before->second.end, before->second.records});
  before->second.end = address;
  return rest;
}

std::vector<Conflict> Shadow::touch(uint64_t address, uint64_t bytes, const Record& record,
                                    const VectorClock& clock) {
  const uint64_t end = address + bytes;
  std::vector<Conflict> conflicts;
  cut(end);
  uint64_t covered_to = address;
  for (auto at = cut(address); at != segments_.end() && at->first < end; ++at) {
    if (covered_to < at->first) segments_.emplace(covered_to, Segment{at->first, {record}});
    covered_to = at->second.end;
    std::vector<Record>& records = at->second.records;
    for (const Record& earlier : records) {
      if (!may_be_swapped(record.touch, earlier.touch) && !clock.covers(earlier.at)) {
        add_conflict(conflicts, at->first, at->second.end, earlier);
      }
    }
    std::erase_if(records, [&](const Record& earlier) { return replaces(record, earlier, clock); });
    records.push_back(record);
  }
  if (covered_to < end) segments_.emplace(covered_to, Segment{end, {record}});
  if (record.touch == Touch::kWrite && !keep_unordered_) {
    // A write stands for all that came before it, also for what was reported.
    forget(address, bytes);
    segments_.emplace(address, Segment{end, {record}});
  }
  return conflicts;
}

void Shadow::forget(uint64_t address, uint64_t bytes) {
  cut(address + bytes);
  auto at = cut(address);
  while (at != segments_.end() && at->first < address + bytes) at = segments_.erase(at);
}

void Shadow::drop_covered(const VectorClock& everything) {
  for (auto at = segments_.begin(); at != segments_.end();) {
    std::erase_if(at->second.records,
                  [&](const Record& record) { return everything.covers(record.at); });
    at = at->second.records.empty() ? segments_.erase(at) : std::next(at);
  }
}

}  // namespace simcuda
