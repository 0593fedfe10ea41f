// SPDX-License-Identifier: Apache-2.0
// Pinned memory that comes and goes with copies out of it under way. Nobody but its owner may
// change what is in it, from when it is pinned until the copies are done, also those after its
// free. The owner may once it has freed a block behind them.
#pragma once

#include "worker.h"

namespace random_work {

inline void Worker::use_pinned() {
  constexpr size_t kMost = 8;
  if (pinned_.size() == kMost || (!pinned_.empty() && random_.percent(40))) {
    unpin(random_.below(pinned_.size()));
  } else if (!held_.empty()) {
    write_from_pinned(held_[random_.below(held_.size())]);
  }
}

// The block's first words come from pinned memory, the others from a kernel.
inline void Worker::write_from_pinned(Block& block) {
  if (!block.has_words()) return;
  Lane& lane = lane_for(block, random_);
  order(block, lane, random_);
  renew(block);
  const std::vector<Window> windows = block.windows();
  for (size_t i = 1; i < windows.size(); ++i) fill(block, windows[i], lane);
  Pinned pinned{nullptr, windows[0].count, block.pattern, lane.place, block.accesses};
  const size_t bytes = sizeof(uint32_t) * pinned.count;
  constexpr unsigned kFlags[] = {0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED};
  void* memory = nullptr;
  if (!tally_.note("cuMemHostAlloc", cuMemHostAlloc(&memory, bytes + draw_size(),
                                                    kFlags[random_.below(std::size(kFlags))]))) {
    return fill(block, windows[0], lane);
  }
  pinned.words = static_cast<uint32_t*>(memory);
  for (size_t i = 0; i < pinned.count; ++i)
    pinned.words[i] = pinned.seed + static_cast<uint32_t>(i);
  tally_.note("cuMemcpyHtoDAsync, pinned",
              cuMemcpyHtoDAsync(block.address, pinned.words, bytes, lane.stream));
  pinned_.push_back(pinned);
  // Memory of a context that ends goes with it.
  if (!lane.place->primary || random_.percent(50)) unpin(pinned_.size() - 1);
}

inline void Worker::unpin(size_t index) {
  const Pinned pinned = pinned_[index];
  pinned_.erase(pinned_.begin() + static_cast<ptrdiff_t>(index));
  for (size_t i = 0; i < pinned.count; ++i) {
    tally_.read(pinned.words[i] != pinned.seed + static_cast<uint32_t>(i), pinned.words[i]);
  }
  const bool over = pinned.access <= station_in(*pinned.place).freed_after;
  const uint64_t relies = world_.settings.relies;
  if (over && relies != 0 && random_.percent(relies)) {
    std::fill_n(pinned.words, pinned.count, 0xdeadbeef);
  }
  tally_.note("cuMemFreeHost", cuMemFreeHost(pinned.words));
}

}  // namespace random_work
