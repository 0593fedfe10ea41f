// SPDX-License-Identifier: Apache-2.0
// What the random program works with: contexts, streams, events and blocks, and who may touch a
// block next. A block's accesses form one chain: each is ordered after the one before it, by the
// stream both are on, by the legacy stream's own rule, by an event, by a free in between, or by the
// host, which waits.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device_code.h"

namespace random_work {

struct Place {  // a context
  CUcontext context = nullptr;
  CUdevice device = 0;
  bool primary = true;   // else it belongs to one thread, and ends with its blocks in use
  uint64_t reached = 0;  // a bit for each device whose memory its kernels may touch
  Kernels kernels;

  void reach(const Place& other, bool may) {
    const uint64_t bit = uint64_t{1} << other.device;
    reached = may ? reached | bit : reached & ~bit;
  }
  bool reaches(const Place& other) const {
    return device == other.device || (reached >> other.device & 1) != 0;
  }
};

struct Lane {  // a stream
  enum Kind : uint8_t { kLegacy, kPerThread, kBlocking, kFree, kOtherFree, kKinds };
  Place* place = nullptr;
  CUstream stream = nullptr;
  Kind kind = kLegacy;

  bool created() const { return kind >= kBlocking; }
  bool blocking() const { return kind <= kBlocking; }
};

// The driver orders the legacy stream with every blocking stream of its context.
inline bool driver_orders(const Lane& before, const Lane& after) {
  const bool legacy = before.kind == Lane::kLegacy || after.kind == Lane::kLegacy;
  return before.place == after.place && legacy && before.blocking() && after.blocking();
}

struct Event {
  Event(Place* where, CUevent made) : place(where), handle(made) {}
  ~Event() { cuEventDestroy(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Place* const place;
  const CUevent handle;
};

// A stretch of words that is written and read, for a large block is not touched everywhere.
struct Window {
  size_t first, count;
};

struct Block {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  uint64_t id = 0;
  Place* place = nullptr;
  bool stream_ordered = false;  // from cuMemAllocAsync
  uint32_t writes = 0;          // so far
  uint32_t pattern = 0;         // word i holds pattern + i
  // The last access is the latest of this stream, or over with this event; neither: with the host.
  Lane* lane = nullptr;
  std::shared_ptr<Event> ready;
  uint64_t accesses = 0;  // of the thread, up to that one

  // Smaller ones hold the pattern's lowest byte everywhere.
  bool has_words() const { return bytes >= 64; }
  uint8_t byte() const { return static_cast<uint8_t>(pattern); }
  // Other devices may touch it.
  bool shared() const { return place->primary && !stream_ordered; }

  std::vector<Window> windows() const {
    constexpr size_t kMost = 1024;
    const size_t words = bytes / sizeof(uint32_t);
    std::vector<Window> all{{0, std::min(words, kMost)}};
    const size_t rest = std::min(words - all[0].count, kMost);
    if (rest != 0) all.push_back({words - rest, rest});
    return all;
  }
};

// What one thread has in a context.
struct Station {
  Place* place = nullptr;
  std::array<Lane, Lane::kKinds> lanes;
  CUdeviceptr verdict = 0;   // two sums, of what kernels found
  uint64_t freed_after = 0;  // so many accesses of the thread, it freed memory of the context
};

}  // namespace random_work
