// SPDX-License-Identifier: Apache-2.0
#include "memory/small_block.h"

#include <algorithm>
#include <bit>

namespace simcuda {

// First slot at or after `from` that is used (or free); kSlots if there is none.
size_t SmallBlock::next(size_t from, bool used) const {
  if (from >= kSlots) return kSlots;
  size_t word = from / 64;
  uint64_t bits = (used ? words_[word] : ~words_[word]) & (~uint64_t{0} << (from % 64));
  while (bits == 0) {
    if (++word == kWords) return kSlots;
    bits = used ? words_[word] : ~words_[word];
  }
  return word * 64 + static_cast<size_t>(std::countr_zero(bits));
}

void SmallBlock::mark(size_t first, size_t count, bool used) {
  while (count != 0) {
    const size_t bit = first % 64;
    const size_t here = std::min(count, 64 - bit);
    const uint64_t mask = (here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1) << bit;
    used ? words_[first / 64] |= mask : words_[first / 64] &= ~mask;
    first += here;
    count -= here;
  }
}

size_t SmallBlock::take(size_t slots, std::unique_ptr<Allocation>& allocation) {
  size_t longest = 0;
  for (size_t first = next(0, false); first < kSlots;) {
    const size_t end = next(first, true);
    if (end - first >= slots) {
      mark(first, slots, true);
      used_slots_ += slots;
      starts_[first] = std::move(allocation);
      return first;
    }
    longest = std::max(longest, end - first);
    first = next(end, false);
  }
  longest_run_bound_ = longest;
  return kNoSlot;
}

size_t SmallBlock::free_run_around(size_t slot) const {
  size_t first = slot;
  while (first > 0 && !used(first - 1)) {
    // Whole free words are skipped at once.
    first -= (first % 64 == 0 && words_[first / 64 - 1] == 0) ? 64 : 1;
  }
  return next(slot, true) - first;
}

std::unique_ptr<Allocation> SmallBlock::give_back(size_t slot) {
  std::unique_ptr<Allocation> allocation = std::move(starts_[slot]);
  if (!allocation) return nullptr;
  const size_t slots = slots_for(allocation->bytes);
  mark(slot, slots, false);
  used_slots_ -= slots;
  longest_run_bound_ = std::max(longest_run_bound_, free_run_around(slot));
  return allocation;
}

const Allocation* SmallBlock::at_or_before(size_t slot) const {
  for (size_t at = slot + 1; at-- > 0;) {
    if (starts_[at]) return starts_[at].get();
    if (!used(at)) return nullptr;
  }
  return nullptr;
}

}  // namespace simcuda
