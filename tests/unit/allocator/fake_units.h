// SPDX-License-Identifier: Apache-2.0
// Units without a device, for unit tests: so many there are, and every rule of UnitSource is
// checked at each call: what is mapped lies in a range that was reserved, at addresses behind which
// there is nothing yet; what is unmapped was mapped; what is released is mapped nowhere. A broken
// rule is counted. Every call can be made to fail. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "allocator/base/source.h"

namespace cistern::test {

class FakeUnits final : public alloc::UnitSource {
 public:
  enum class Call { reserve, create, map, unmap };

  explicit FakeUnits(uint64_t count, uint64_t bytes = uint64_t{2} << 20)
      : bytes_(bytes), most_(count) {}

  uint64_t unit_bytes() override { return bytes_; }

  std::function<void()> on_reserve;  // each time, without the lock
  int reserve_addresses(uint64_t bytes, uint64_t* address) override {
    if (on_reserve) on_reserve();
    std::lock_guard guard(mutex_);
    if (fails(Call::reserve) || bytes > most_range) return alloc::kOutOfMemory;
    *address = next_;
    next_ += bytes + bytes_;
    ranges[*address] = bytes;
    return alloc::kSuccess;
  }
  void free_addresses(uint64_t address, uint64_t bytes) override {
    std::lock_guard guard(mutex_);
    const auto range = ranges.find(address);
    broken += range == ranges.end() || range->second != bytes ? 1 : 0;
    const auto behind = mapped.lower_bound(address);
    broken += behind != mapped.end() && behind->first < address + bytes ? 1 : 0;
    ranges.erase(address);
  }

  uint64_t most_units() override { return most_told; }
  std::function<void()> on_create;  // once, without the lock
  int create(alloc::Unit* unit) override {
    if (const auto meanwhile = std::exchange(on_create, nullptr)) meanwhile();
    std::lock_guard guard(mutex_);
    if (fails(Call::create)) return create_fails_with;
    if (units.size() == most_) return alloc::kOutOfMemory;
    *unit = ++last_;
    units.insert(last_);
    return alloc::kSuccess;
  }
  void release(alloc::Unit unit) override {
    std::lock_guard guard(mutex_);
    broken += units.erase(unit) == 1 ? 0 : 1;
    for (const auto& [address, there] : mapped) broken += there == unit ? 1 : 0;
  }

  int map(uint64_t address, const alloc::Unit* first, uint32_t count) override {
    std::lock_guard guard(mutex_);
    if (fails(Call::map)) return kRefused;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t at = address + i * bytes_;
      broken += units.count(first[i]) == 1 && in_range(at) ? 0 : 1;
      for (const auto& [other, there] : mapped) broken += there == first[i] ? 1 : 0;
      broken += mapped.emplace(at, first[i]).second ? 0 : 1;
    }
    return alloc::kSuccess;
  }
  int unmap(uint64_t address, uint32_t count) override {
    std::lock_guard guard(mutex_);
    if (capturing) return alloc::kNotNow;
    if (fails(Call::unmap)) return kRefused;
    for (uint32_t i = 0; i < count; ++i) broken += mapped.erase(address + i * bytes_) == 1 ? 0 : 1;
    return alloc::kSuccess;
  }

  int unmap_of_gone(uint64_t address, uint64_t) override { return unmap(address, 1); }

  // Whether there is memory behind all of this.
  bool has(uint64_t address, uint64_t bytes) {
    std::lock_guard guard(mutex_);
    for (uint64_t at = address / bytes_ * bytes_; at < address + bytes; at += bytes_) {
      if (mapped.count(at) == 0) return false;
    }
    return true;
  }

  static constexpr int kRefused = 1;

  std::map<Call, uint64_t> calls;
  std::map<Call, uint64_t> fail_at;  // the number of the call that fails, from 1 on
  int create_fails_with = alloc::kOutOfMemory;
  bool capturing = false;
  uint64_t most_range = UINT64_MAX, most_told = UINT64_MAX;
  std::set<alloc::Unit> units;
  std::map<uint64_t, alloc::Unit> mapped;
  std::map<uint64_t, uint64_t> ranges;
  int broken = 0;

 private:
  bool fails(Call call) { return ++calls[call] == fail_at[call]; }
  bool in_range(uint64_t address) const {
    auto range = ranges.upper_bound(address);
    if (range == ranges.begin()) return false;
    --range;
    return address + bytes_ <= range->first + range->second;
  }

  std::mutex mutex_;
  uint64_t bytes_, most_;
  uint64_t next_ = uint64_t{0x70} << 40;
  alloc::Unit last_ = 0;
};

}  // namespace cistern::test
