// SPDX-License-Identifier: Apache-2.0
// The physical units of a context: taken from the source within the cap, given back to it, and left
// over where the source does not take them back. Any thread; no lock is held while the source is
// called.
#pragma once

#include <atomic>
#include <utility>

#include "allocator/base/cap.h"
#include "allocator/base/ledger.h"
#include "allocator/base/records.h"
#include "allocator/base/source.h"

namespace cistern::alloc {

struct LeftRange;

// The physical units of one context's expandable memory: taken from the source within the cap,
// counted in the ledger. ChunkMap::units records the units that are mapped in a range. A unit that
// is mapped nowhere belongs to one thread, or to the source. Any thread; no lock is held while the
// source is called.
class UnitSupply {
 public:
  void init(UnitSource* source, Ledger* ledger, Cap* cap) {
    source_ = source;
    ledger_ = ledger;
    cap_ = cap;
    bytes_ = source == nullptr ? 0 : source->unit_bytes();
    units_.set(0);
  }

  UnitSource& source() { return *source_; }
  // 0 if there are no units.
  uint64_t unit_bytes() const { return bytes_; }
  // How many this context has.
  uint64_t units() const { return units_.get(); }

  // Creates `count` units, or fewer if a call fails. Returns how many, and the last call's code in
  // *code.
  uint32_t create(Unit* units, uint32_t count, int* code) {
    *code = kSuccess;
    for (uint32_t made = 0; made < count; ++made) {
      *code = create_one(&units[made]);
      if (*code != kSuccess) return made;
    }
    return count;
  }

  // The units of a range that the source did not take back, for LeftUnits.
  LeftRange left(uint64_t address, Unit* units, uint32_t slots) const;

  // Releases units that are mapped nowhere.
  void release(const Unit* units, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      source_->release(units[i]);
      cap_->refund(bytes_);
    }
    units_.sub(count);
    ledger_->units.sub(count);
    ledger_->units_released.add(count);
    ledger_->reserved.sub(count * bytes_);
  }

 private:
  int create_one(Unit* unit) {
    if (!cap_->charge(bytes_)) return kOutOfMemory;  // no call to the source: not `refused`
    const int code = source_->create(unit);
    if (code != kSuccess) {
      ledger_->refused.add();
      cap_->refund(bytes_);
      return code;
    }
    units_.add();
    ledger_->units.add();
    ledger_->units_created.add();
    ledger_->reserved.add(bytes_);
    ledger_->reserved_peak.raise_to(ledger_->reserved.get());
    return kSuccess;
  }

  UnitSource* source_;
  Ledger* ledger_;
  Cap* cap_;
  uint64_t bytes_;
  Counter units_;
};

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

inline LeftRange UnitSupply::left(uint64_t address, Unit* units, uint32_t slots) const {
  return {nullptr, source_, ledger_, cap_, address, bytes_, slots, units};
}

// Units that the source did not take back when their context ended. They stay charged to the cap
// and counted in the ledger. They are offered again when a later context ends, when memory is
// short, and before a query of free memory is answered. Until they go, Ledger::lost counts them.
//
// Any thread. The source is called without a lock, for units that only the calling thread holds.
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
