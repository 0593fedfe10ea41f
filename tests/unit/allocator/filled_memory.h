// SPDX-License-Identifier: Apache-2.0
// What is in a device's memory, byte by byte, and whose it is: for tests of fills. Thread-safe.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/base/source.h"

namespace cistern::test {

class FilledMemory {
 public:
  // A fill: only of what nobody holds and no earlier work may use.
  void fill(const alloc::FillRange& range) {
    const std::lock_guard guard(mutex_);
    each(range.address, range.bytes, [this](Byte& byte) {
      touched_others_ += byte.owner != Owner::nobody;
      byte.filled = true;
    });
  }

  // The program gets a block: how many of its bytes are not filled. It writes all of them.
  uint64_t hand_out(uint64_t address, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    uint64_t unfilled = 0;
    each(address, bytes, [&](Byte& byte) {
      touched_others_ += byte.owner != Owner::nobody;
      unfilled += !byte.filled;
      byte = {Owner::program, false};
    });
    return unfilled;
  }

  void free(uint64_t address, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    each(address, bytes, [](Byte& byte) { byte.owner = Owner::earlier_work; });
    freed_.emplace_back(address, bytes);
  }

  // Earlier work is done with everything freed so far.
  void finish_work() {
    const std::lock_guard guard(mutex_);
    for (const auto& [address, bytes] : freed_) {
      each(address, bytes, [](Byte& byte) { byte.owner = Owner::nobody; });
    }
    freed_.clear();
  }

  // Bytes of others that were filled or handed out.
  uint64_t touched_others() {
    const std::lock_guard guard(mutex_);
    return touched_others_;
  }

 private:
  enum class Owner : uint8_t { nobody, program, earlier_work };
  struct Byte {
    Owner owner;
    bool filled;
  };
  static constexpr uint64_t kPage = 64 << 10;
  using Page = std::array<Byte, kPage>;

  template <typename Visit>
  void each(uint64_t address, uint64_t bytes, Visit visit) {
    for (const uint64_t end = address + bytes; address != end;) {
      auto& page = pages_[address / kPage];
      if (page == nullptr) page = std::make_unique<Page>();
      for (uint64_t i = address % kPage; i < kPage && address != end; ++i, ++address) {
        visit((*page)[i]);
      }
    }
  }

  std::mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::vector<std::pair<uint64_t, uint64_t>> freed_;
  uint64_t touched_others_ = 0;
};

}  // namespace cistern::test
