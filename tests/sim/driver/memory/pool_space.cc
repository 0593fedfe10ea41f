// SPDX-License-Identifier: Apache-2.0
#include "memory/pool_space.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "memory/device.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Neighbours that one later free speaks for. Of two frees on a stream the later one comes after the
// earlier: what others may use is known a little later, what its own stream may use is not changed.
bool alike(const StreamFreeRef& one, const StreamFreeRef& other) {
  return one == other || (one != nullptr && other != nullptr && one->stream == other->stream);
}

StreamFreeRef later(const StreamFreeRef& one, const StreamFreeRef& other) {
  if (one == nullptr || one == other) return one;
  return one->done->at.step > other->done->at.step ? one : other;
}

struct Totals {
  std::atomic<uint64_t> reserved_bytes, taken, given_back;
};
constinit Totals totals{};

}  // namespace

PoolTotals pool_totals() { return {totals.reserved_bytes, totals.taken, totals.given_back}; }

PoolSpace::~PoolSpace() {
  totals.reserved_bytes -= reserved_;
  for (const auto& [address, bytes] : steps_) device_.give_block(address, bytes);
}

PoolSpace::Runs::iterator PoolSpace::drop(Runs::iterator at) {
  by_size_.erase({at->second.bytes, at->first});
  if (at->second.freed != nullptr) --unsettled_;
  return free_.erase(at);
}

void PoolSpace::add(CUdeviceptr address, uint64_t bytes, StreamFreeRef freed) {
  by_size_.emplace(bytes, address);
  if (freed != nullptr) ++unsettled_;
  free_.emplace(address, Run{bytes, std::move(freed)});
}

void PoolSpace::give(CUdeviceptr address, uint64_t bytes, StreamFreeRef freed) {
  auto after = free_.lower_bound(address);
  if (after != free_.end() && after->first == address + bytes &&
      alike(after->second.freed, freed)) {
    bytes += after->second.bytes;
    freed = later(freed, after->second.freed);
    after = drop(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    const auto& [start, run] = *before;
    if (start + run.bytes == address && alike(run.freed, freed)) {
      address = start;
      bytes += run.bytes;
      freed = later(freed, run.freed);
      drop(before);
    }
  }
  add(address, bytes, std::move(freed));
}

uint64_t PoolSpace::placed(uint64_t bytes) const {
  const bool alone = step_ == Device::kUnitBytes && bytes >= Device::kSmallLimit;
  return round_up(bytes, alone ? Device::kUnitBytes : SmallBlock::kSlotBytes);
}

CUdeviceptr PoolSpace::place_in(CUdeviceptr start, uint64_t length, uint64_t bytes) const {
  CUdeviceptr at = start;
  if (step_ == Device::kUnitBytes) {
    const uint64_t within = start % Device::kUnitBytes;
    const bool fits =
        within == 0 || (bytes < Device::kSmallLimit && within + bytes <= Device::kUnitBytes);
    if (!fits) at += Device::kUnitBytes - within;
  }
  return at + bytes <= start + length ? at : 0;
}

PoolSpace::Taken PoolSpace::take_from(Runs::iterator first, CUdeviceptr address, uint64_t bytes) {
  Taken taken{.address = address};
  const CUdeviceptr end = address + bytes;
  while (first != free_.end() && first->first < end) {
    const auto [start, run] = *first;
    const CUdeviceptr run_end = start + run.bytes;
    if (run_end <= address) {
      ++first;
      continue;
    }
    if (run.freed != nullptr) taken.after.push_back(run.freed);
    first = drop(first);
    if (start < address) add(start, address - start, run.freed);
    if (run_end > end) add(end, run_end - end, run.freed);
  }
  return taken;
}

PoolSpace::Taken PoolSpace::take(uint64_t bytes, const Usable& usable) {
  const auto counts = [&](const Run& run) { return run.freed == nullptr || usable(*run.freed); };
  for (auto fit = by_size_.lower_bound({bytes, 0}); fit != by_size_.end(); ++fit) {
    const CUdeviceptr address = place_in(fit->second, fit->first, bytes);
    const auto run = address != 0 ? free_.find(fit->second) : free_.end();
    if (address != 0 && counts(run->second)) return take_from(run, address, bytes);
  }
  if (unsettled_ == 0) return {};  // no two runs lie side by side
  auto first = free_.end();
  CUdeviceptr end = 0;
  for (auto run = free_.begin(); run != free_.end(); ++run) {
    if (!counts(run->second)) {
      first = free_.end();
      continue;
    }
    if (first == free_.end() || run->first != end) first = run;
    end = run->first + run->second.bytes;
    const CUdeviceptr address = place_in(first->first, end - first->first, bytes);
    if (address != 0) return take_from(first, address, bytes);
  }
  return {};
}

void PoolSpace::settle(const Usable& over) {
  if (unsettled_ == 0) return;
  std::vector<std::pair<CUdeviceptr, uint64_t>> settled;
  for (auto run = free_.begin(); run != free_.end();) {
    const bool is_over = run->second.freed != nullptr && over(*run->second.freed);
    if (is_over) settled.emplace_back(run->first, run->second.bytes);
    run = is_over ? drop(run) : std::next(run);
  }
  for (const auto& [address, bytes] : settled) give(address, bytes, nullptr);
}

bool PoolSpace::unused(CUdeviceptr address, uint64_t bytes) const {
  auto run = free_.upper_bound(address);
  if (run == free_.begin()) return false;
  --run;
  return run->second.freed == nullptr && address + bytes <= run->first + run->second.bytes;
}

void PoolSpace::cut_out(CUdeviceptr address, uint64_t bytes) {
  const auto run = std::prev(free_.upper_bound(address));
  const CUdeviceptr start = run->first, end = start + run->second.bytes;
  drop(run);
  if (address > start) add(start, address - start, nullptr);
  if (address + bytes < end) add(address + bytes, end - (address + bytes), nullptr);
}

void PoolSpace::trim(uint64_t keep_bytes) {
  const uint64_t before = reserved_;
  for (auto step = steps_.end(); step != steps_.begin();) {
    --step;
    const auto [address, bytes] = *step;
    if (reserved_ < keep_bytes + bytes || !unused(address, bytes)) continue;
    cut_out(address, bytes);
    device_.give_block(address, bytes);
    reserved_ -= bytes;
    step = steps_.erase(step);
  }
  if (reserved_ == before) return;
  totals.reserved_bytes -= before - reserved_;
  ++totals.given_back;
}

bool PoolSpace::take_block(uint64_t bytes, uint64_t wanted_bytes) {
  const CUdeviceptr block = device_.take_block(bytes, wanted_bytes);
  if (block == 0) return false;
  for (uint64_t at = 0; at < bytes; at += step_) {
    steps_.emplace(block + at, std::min(step_, bytes - at));
  }
  reserved_ += bytes;
  totals.reserved_bytes += bytes;
  ++totals.taken;
  watch_pool_got(block, bytes);
  give(block, bytes, nullptr);
  return true;
}

bool PoolSpace::grow(uint64_t bytes, uint64_t most_bytes) {
  const uint64_t whole = round_up(bytes, step_);
  // The memory of steps that lie unused moves to the new place.
  trim(reserved_ > whole ? reserved_ - whole : 0);
  const auto allowed = [&](uint64_t more) { return more <= most_bytes - reserved_; };
  if (allowed(whole) && take_block(whole, bytes)) return true;
  // Where a whole step is more than the device has, what is needed.
  const uint64_t exact = round_up(bytes, Device::kUnitBytes);
  trim(0);
  return exact != whole && allowed(exact) && take_block(exact, bytes);
}

}  // namespace simcuda
