// SPDX-License-Identifier: Apache-2.0
// Which record is whose, in a slab of many blocks: bits per granule say where blocks start and
// which of them are clean, and from a start one or two reads lead to the number of the block's
// record. Not thread-safe: the lock of the SlabPool that owns the slab protects it.
#pragma once

#include <cstdint>

#include "allocator/base/driver_rounding.h"

namespace cistern::alloc {

inline constexpr uint64_t kSlabBytes = uint64_t{2} << 20;
inline constexpr uint32_t kGranuleBytes = kDriverGranule;
inline constexpr uint32_t kGranules = kSlabBytes / kGranuleBytes;

class SlabMap {
 public:
  void clear();

  // A clean block starts at this granule; and none does any more.
  void add_clean(uint32_t start, uint16_t number) {
    Word& at = word(start);
    if (at.starts == 0) some_ |= uint64_t{1} << (start / 64);
    at.starts |= bit(start);
    at.clean |= bit(start);
    at.numbers[start % 64] = number;
  }
  void remove(uint32_t start) {
    Word& at = word(start);
    at.starts &= ~bit(start);
    at.clean &= ~bit(start);
    if (at.starts == 0) some_ &= ~(uint64_t{1} << (start / 64));
  }

  bool starts_at(uint32_t granule) const { return (word(granule).starts >> granule % 64 & 1) != 0; }
  bool clean_at(uint32_t start) const { return (word(start).clean >> start % 64 & 1) != 0; }
  void set_clean(uint32_t start) { word(start).clean |= bit(start); }
  void set_taken(uint32_t start) { word(start).clean &= ~bit(start); }

  // The record of the block that starts at this granule; one must.
  uint16_t number_at(uint32_t start) const { return word(start).numbers[start % 64]; }

  // The last block start below `granule` > 0; there is always one, at 0.
  uint32_t last_start_before(uint32_t granule) const;

 private:
  // What is known of 64 granules lies together: a free touches one place.
  struct Word {
    uint64_t starts;       // a block starts at this granule
    uint64_t clean;        // a clean block starts at this granule
    uint16_t numbers[64];  // the record of the block that starts there
  };
  static constexpr uint32_t kWords = kGranules / 64;

  static uint64_t bit(uint32_t granule) { return uint64_t{1} << (granule % 64); }
  Word& word(uint32_t granule) { return all_[granule / 64]; }
  const Word& word(uint32_t granule) const { return all_[granule / 64]; }

  uint64_t some_;  // the words in which a block starts
  Word all_[kWords];
};

}  // namespace cistern::alloc
