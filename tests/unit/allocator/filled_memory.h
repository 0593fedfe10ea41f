// SPDX-License-Identifier: Apache-2.0
// What is in a device's memory, byte by byte, and whose it is: for tests of fills. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
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
    each(range.address, range.bytes, [this](uint8_t* owner, uint8_t* filled, uint64_t bytes) {
      touched_others_ += others_than(kNobody, owner, bytes);
      std::memset(filled, 1, bytes);
    });
  }

  // The program gets a block: how many of its bytes are not filled. It writes all of them.
  uint64_t hand_out(uint64_t address, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    uint64_t unfilled = 0;
    each(address, bytes, [&](uint8_t* owner, uint8_t* filled, uint64_t part) {
      touched_others_ += others_than(kNobody, owner, part);
      unfilled += others_than(1, filled, part);
      std::memset(owner, kProgram, part);
      std::memset(filled, 0, part);
    });
    return unfilled;
  }

  void free(uint64_t address, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    is_of(kEarlierWork, address, bytes);
    freed_.emplace_back(address, bytes);
  }

  // Earlier work is done with everything freed so far.
  void finish_work() {
    const std::lock_guard guard(mutex_);
    for (const auto& [address, bytes] : freed_) is_of(kNobody, address, bytes);
    freed_.clear();
  }

  // Bytes of others that were filled or handed out.
  uint64_t touched_others() {
    const std::lock_guard guard(mutex_);
    return touched_others_;
  }

 private:
  enum Owner : uint8_t { kNobody, kProgram, kEarlierWork };
  static constexpr uint64_t kPage = 64 << 10;
  struct Page {
    std::array<uint8_t, kPage> owner{}, filled{};
  };

  void is_of(Owner owner, uint64_t address, uint64_t bytes) {
    each(address, bytes,
         [&](uint8_t* of, uint8_t*, uint64_t part) { std::memset(of, owner, part); });
  }

  // Compared as a whole first: a sanitizer looks at each access.
  static uint64_t others_than(uint8_t value, const uint8_t* of, uint64_t bytes) {
    static const auto pages = [] {
      std::array<std::array<uint8_t, kPage>, 2> all{};
      all[1].fill(1);
      return all;
    }();
    if (std::memcmp(of, pages[value].data(), bytes) == 0) return 0;
    return bytes - static_cast<uint64_t>(std::count(of, of + bytes, value));
  }

  template <typename Visit>
  void each(uint64_t address, uint64_t bytes, Visit visit) {
    for (const uint64_t end = address + bytes; address != end;) {
      auto& page = pages_[address / kPage];
      if (page == nullptr) page = std::make_unique<Page>();
      const uint64_t from = address % kPage, part = std::min(kPage - from, end - address);
      visit(page->owner.data() + from, page->filled.data() + from, part);
      address += part;
    }
  }

  std::mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::vector<std::pair<uint64_t, uint64_t>> freed_;
  uint64_t touched_others_ = 0;
};

}  // namespace cistern::test
