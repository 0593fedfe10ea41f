// SPDX-License-Identifier: Apache-2.0
#include "memory/ranges.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "memory/device.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

struct Index {
  std::shared_mutex mutex;
  std::map<CUdeviceptr, Allocation> by_base;

  std::map<CUdeviceptr, Allocation>::iterator at_or_before(CUdeviceptr address) {
    auto after = by_base.upper_bound(address);
    return after == by_base.begin() ? by_base.end() : std::prev(after);
  }
};

Index& index() {
  static Index& all = *new Index;
  return all;
}

bool insert(const Allocation& range) {
  Index& all = index();
  const std::unique_lock lock(all.mutex);
  const auto after = all.by_base.lower_bound(range.base);
  if (after != all.by_base.end() && after->first < range.base + range.bytes) return false;
  const auto before = all.at_or_before(range.base);
  if (before != all.by_base.end() && before->second.contains(range.base)) return false;
  all.by_base.emplace(range.base, range);
  return true;
}

std::optional<Allocation> take_out(CUdeviceptr base, MemoryKind kind, uint64_t id = 0) {
  Index& all = index();
  const std::unique_lock lock(all.mutex);
  const auto found = all.by_base.find(base);
  if (found == all.by_base.end() || found->second.kind != kind) return std::nullopt;
  if (id != 0 && found->second.id != id) return std::nullopt;
  const Allocation range = found->second;
  all.by_base.erase(found);
  return range;
}

std::vector<Allocation> take_out_all_of(const Context& context) {
  Index& all = index();
  const std::unique_lock lock(all.mutex);
  std::vector<Allocation> removed;
  for (auto at = all.by_base.begin(); at != all.by_base.end();) {
    const bool owned = at->second.context == &context && at->second.kind != MemoryKind::kPool;
    if (owned) removed.push_back(at->second);
    at = owned ? all.by_base.erase(at) : std::next(at);
  }
  return removed;
}

}  // namespace

bool add_range(const Allocation& range, Past past) {
  if (!insert(range)) return false;
  watch_begun(range, past);
  return true;
}

std::optional<Allocation> remove_range(CUdeviceptr base, MemoryKind kind) {
  const auto range = take_out(base, kind);
  if (range) watch_freed(*range);
  return range;
}

std::optional<Allocation> take_range(CUdeviceptr base, MemoryKind kind, uint64_t id) {
  return take_out(base, kind, id);
}

bool set_range_ending(CUdeviceptr base, bool ending) {
  Index& all = index();
  const std::unique_lock lock(all.mutex);
  const auto found = all.by_base.find(base);
  if (found == all.by_base.end() || found->second.ending == ending) return false;
  found->second.ending = ending;
  return true;
}

void set_reached_by(CUdeviceptr base, uint64_t devices) {
  Index& all = index();
  const std::unique_lock lock(all.mutex);
  const auto found = all.by_base.find(base);
  if (found != all.by_base.end()) found->second.reached_by = devices;
}

std::optional<Allocation> find_range(CUdeviceptr address) {
  Index& all = index();
  const std::shared_lock lock(all.mutex);
  const auto found = all.at_or_before(address);
  if (found == all.by_base.end() || !found->second.contains(address)) return std::nullopt;
  return found->second;
}

std::vector<Allocation> remove_ranges_of(const Context& context) {
  std::vector<Allocation> removed = take_out_all_of(context);
  for (const Allocation& range : removed) watch_ended(range);
  return removed;
}

std::optional<Allocation> find_allocation(CUdeviceptr address) {
  const Device* device = device_of(address);
  const auto found = device != nullptr ? device->find(address) : std::nullopt;
  return found ? found : find_range(address);
}

bool device_covers(CUdeviceptr address, size_t bytes) {
  // A stretch may run over several mappings laid side by side.
  while (bytes != 0) {
    const auto found = find_allocation(address);
    if (!found || (found->kind == MemoryKind::kMapped && found->reached_by == 0)) return false;
    const size_t here = found->bytes - (address - found->base);
    if (here >= bytes) return true;
    if (found->kind != MemoryKind::kMapped) return false;
    address += here;
    bytes -= here;
  }
  return true;
}

}  // namespace simcuda
