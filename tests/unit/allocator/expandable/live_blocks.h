// SPDX-License-Identifier: Apache-2.0
// What a test holds of a device: its blocks, and how many units of 2 MiB hold a byte of them. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace cistern::test {

inline constexpr uint64_t kUnit = uint64_t{2} << 20;

inline uint64_t units_for(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit; }

class LiveBlocks {
 public:
  // False where it lies over another block of the test's.
  bool add(uint64_t address, uint64_t bytes) {
    const auto behind = blocks_.lower_bound(address);
    const bool apart = behind == blocks_.end() || address + bytes <= behind->first;
    const bool begins = behind == blocks_.begin() ||
                        std::prev(behind)->first + std::prev(behind)->second <= address;
    blocks_[address] = bytes;
    bytes_ += bytes;
    for_each_unit(address, bytes, [this](uint64_t unit) { ++held_[unit]; });
    return apart && begins;
  }
  void remove(uint64_t address) {
    const auto block = blocks_.find(address);
    for_each_unit(address, block->second, [this](uint64_t unit) {
      if (--held_[unit] == 0) held_.erase(unit);
    });
    bytes_ -= block->second;
    blocks_.erase(block);
  }

  // By address, each with its bytes.
  const std::map<uint64_t, uint64_t>& blocks() const { return blocks_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t units_held() const { return held_.size(); }

 private:
  template <typename Visitor>
  static void for_each_unit(uint64_t address, uint64_t bytes, Visitor visit) {
    for (uint64_t unit = address / kUnit; unit <= (address + bytes - 1) / kUnit; ++unit) {
      visit(unit);
    }
  }

  std::map<uint64_t, uint64_t> blocks_;
  std::map<uint64_t, uint64_t> held_;  // unit, blocks
  uint64_t bytes_ = 0;
};

}  // namespace cistern::test
