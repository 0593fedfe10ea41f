// SPDX-License-Identifier: Apache-2.0
//
// One 2 MiB block shared by requests below 1 MiB: 4096 slots of 512 bytes, first fit, as the real
// driver places them. Guarded by its device's mutex.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "memory/allocation.h"

namespace simcuda {

class SmallBlock {
 public:
  static constexpr size_t kSlotBytes = 512;
  static constexpr size_t kSlots = 4096;
  static constexpr size_t kNoSlot = kSlots;

  // First slot of a free run of this length, now taken by the allocation; kNoSlot if none.
  size_t take(size_t slots, std::unique_ptr<Allocation>& allocation);

  // The allocation that starts at this slot, taken out of the block; null if none starts there.
  std::unique_ptr<Allocation> give_back(size_t slot);

  // The allocation that starts at or last before this slot.
  const Allocation* at_or_before(size_t slot) const;

  bool empty() const { return used_slots_ == 0; }
  // No free run is longer than this.
  size_t longest_run_bound() const { return longest_run_bound_; }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& allocation : starts_) {
      if (allocation) visit(*allocation);
    }
  }

 private:
  static constexpr size_t kWords = kSlots / 64;

  bool used(size_t slot) const { return (words_[slot / 64] >> (slot % 64)) & 1; }
  size_t next(size_t from, bool used) const;
  void mark(size_t first, size_t count, bool used);
  size_t free_run_around(size_t slot) const;

  std::array<uint64_t, kWords> words_{};
  std::array<std::unique_ptr<Allocation>, kSlots> starts_{};
  size_t used_slots_ = 0;
  size_t longest_run_bound_ = kSlots;
};

constexpr size_t slots_for(size_t bytes) {
  return (bytes + SmallBlock::kSlotBytes - 1) / SmallBlock::kSlotBytes;
}

}  // namespace simcuda
