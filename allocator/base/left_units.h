// SPDX-License-Identifier: Apache-2.0
// Units that the source did not take back when their context ended. They stay charged to the cap
// and counted in the ledger. They are offered again when a later context ends, when memory is
// short, and before a query of free memory is answered. Until they go, Ledger::lost counts them.
//
// Any thread. The source is called without a lock, for units that only the calling thread holds.
#pragma once

#include <atomic>
#include <utility>

#include "allocator/base/cap.h"
#include "allocator/base/ledger.h"
#include "allocator/base/records.h"
#include "allocator/base/source.h"

namespace cistern::alloc {

// A range of addresses of an ended context, and the units that are still mapped in it.
struct LeftRange {
  LeftRange* next;  // also the Arena's link
  UnitSource* source;
  Ledger* ledger;
  Cap* cap;
  uint64_t address, unit_bytes;
  uint32_t slots;
  Unit* units;  // for each slot the unit behind it, or 0; an array mapped by os::map()

  // Offers each unit again. Sets `*any` if one went. True once no unit is left; then the addresses
  // were freed too.
  bool give_back(bool* any) {
    bool all = true;
    for (uint32_t i = 0; i < slots; ++i) {
      if (units[i] == 0) continue;
      const bool went = give_back_one(i);
      *any |= went;
      all &= went;
    }
    if (!all) return false;
    source->free_addresses(address, slots * unit_bytes);
    os::unmap(units, slots * sizeof *units);
    return true;
  }

 private:
  bool give_back_one(uint32_t slot) {
    if (source->unmap_of_gone(address + slot * unit_bytes, unit_bytes) != kSuccess) return false;
    source->release(std::exchange(units[slot], Unit{0}));
    cap->refund(unit_bytes);
    ledger->units.sub(1);
    ledger->units_released.add();
    ledger->reserved.sub(unit_bytes);
    ledger->lost.sub(1);
    return true;
  }
};

class LeftUnits {
 public:
  // False if the system has no memory to remember the range.
  bool add(const LeftRange& range) {
    LeftRange* record = records_.take();
    if (record == nullptr) return false;
    *record = range;
    keep(record);
    return true;
  }

  // Offers all of them to their sources again. True if any went.
  bool try_again() {
    if (first_.load(std::memory_order_relaxed) == nullptr) return false;
    LeftRange* range = first_.exchange(nullptr);
    bool any = false;
    while (range != nullptr) {
      LeftRange* const next = range->next;
      range->give_back(&any) ? records_.give_back(range) : keep(range);
      range = next;
    }
    return any;
  }

  void reset_after_fork() { records_.reset_after_fork(); }

 private:
  void keep(LeftRange* range) {
    range->next = first_.load();
    while (!first_.compare_exchange_weak(range->next, range)) {
    }
  }

  std::atomic<LeftRange*> first_{nullptr};  // taken only as a whole
  Arena<LeftRange, 4096> records_;
};

}  // namespace cistern::alloc
