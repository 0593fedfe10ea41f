// SPDX-License-Identifier: Apache-2.0
// The requested bytes that are live in one pool. It passes changes to the device's Ledger in steps
// of 64 KiB, so that threads of different pools do not contend for one counter; its peak is exact
// as long as only one pool allocates. Written under the pool's lock; any thread reads it.
#pragma once

#include "allocator/base/ledger.h"

namespace cistern::alloc {

class LiveCount {
 public:
  void init(Ledger* ledger) { ledger_ = ledger; }

  // A reader of both counts who comes between the two lines of a step has it twice or not at all:
  // peaks alone are read so, and may be a step off.
  void add(uint64_t bytes) {
    live_.own_add(bytes);
    const auto unknown = static_cast<int64_t>(unpublished());
    ledger_->note_live(unknown);
    if (unknown <= kStep) [[likely]]
      return;
    published_.own_add(static_cast<uint64_t>(unknown));
    ledger_->live.add(static_cast<uint64_t>(unknown));
  }
  void sub(uint64_t bytes) {
    live_.own_sub(bytes);
    const auto unknown = static_cast<int64_t>(unpublished());
    if (unknown >= -kStep) [[likely]]
      return;
    ledger_->live.add(static_cast<uint64_t>(unknown));
    published_.own_add(static_cast<uint64_t>(unknown));
  }

  uint64_t get() const { return live_.get(); }
  // How much of it the Ledger does not know yet (it may also know too many).
  uint64_t unpublished() const { return live_.get() - published_.get(); }

  void forget_all() {
    ledger_->live.sub(published_.get());
    live_.set(0);
    published_.set(0);
  }

  // More than this is unpublished only while a block of that size is being added.
  static constexpr int64_t kStep = 64 * 1024;

 private:
  Ledger* ledger_;
  Counter live_, published_;
};

}  // namespace cistern::alloc
