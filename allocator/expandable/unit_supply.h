// SPDX-License-Identifier: Apache-2.0
// The physical units of one context's expandable memory: taken from the source within the cap,
// counted in the ledger. ChunkMap::units records the units that are mapped in a range. A unit that
// is mapped nowhere belongs to one thread, or to the source. Any thread; no lock is held while the
// source is called.
#pragma once

#include "allocator/base/cap.h"
#include "allocator/base/ledger.h"
#include "allocator/base/left_units.h"
#include "allocator/base/source.h"

namespace cistern::alloc {

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
  LeftRange left(uint64_t address, Unit* units, uint32_t slots) const {
    return {nullptr, source_, ledger_, cap_, address, bytes_, slots, units};
  }

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

}  // namespace cistern::alloc
