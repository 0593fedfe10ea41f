// SPDX-License-Identifier: Apache-2.0
// What earlier runs of graphs have shown, by name: how many bytes of the arena a run needs, and
// which of its requests outlive it. A request is identified by its size and its number among the
// run's requests of that size, so that threads of one run may take turns. All zero bytes at the
// start. Not thread-safe.
#pragma once

#include <cstdint>

namespace cistern::alloc {

class KnownGraph {
 public:
  static constexpr unsigned kMostSizes = 1024;  // requests of further sizes are taken to end

  // The requests of one run, counted by size.
  struct Counts {
    uint32_t seen[kMostSizes];
  };
  // One request of a run.
  struct Key {
    uint16_t size;  // an index; kMostSizes: not known by size
    uint16_t nth;   // of its size: 0 to 63, where the last stands for all further ones
  };

  uint32_t name() const { return name_; }
  void begin(uint32_t name) { name_ = name; }

  // The next request of `bytes` in the run with these counts.
  Key next(uint64_t bytes, Counts& counts) {
    const unsigned size = find_size(bytes);
    if (size == kMostSizes) return {kMostSizes, 0};
    const uint32_t nth = counts.seen[size]++;
    return {static_cast<uint16_t>(size), static_cast<uint16_t>(nth < kLast ? nth : kLast)};
  }

  bool outlives(Key key) const {
    return key.size != kMostSizes && (sizes_[key.size].outlive >> key.nth & 1) != 0;
  }
  void note_outlives(Key key) {
    if (key.size != kMostSizes) sizes_[key.size].outlive |= uint64_t{1} << key.nth;
  }

  // Whether a run has ended, and the bytes of the arena that one needs. It only grows.
  bool known() const { return runs_ != 0; }
  uint64_t need() const { return need_; }
  void note_run(uint64_t need) {
    ++runs_;
    if (need > need_) need_ = need;
  }

 private:
  static constexpr uint32_t kLast = 63;

  struct Size {
    uint64_t bytes;    // 0: free
    uint64_t outlive;  // one bit for each nth
  };

  unsigned find_size(uint64_t bytes) {
    const uint64_t hash = bytes * 0x9e3779b97f4a7c15u >> 32;
    for (unsigned i = 0; i < kProbes; ++i) {
      Size& size = sizes_[(hash + i) % kMostSizes];
      if (size.bytes == 0) size.bytes = bytes;
      if (size.bytes == bytes) return static_cast<unsigned>((hash + i) % kMostSizes);
    }
    return kMostSizes;
  }

  static constexpr unsigned kProbes = 16;

  uint32_t name_;
  uint32_t runs_;
  uint64_t need_;
  Size sizes_[kMostSizes];
};

}  // namespace cistern::alloc
