// SPDX-License-Identifier: Apache-2.0
// A context of a thread's own, which ends with blocks in use and work pending on them.
#pragma once

#include "worker.h"

namespace random_work {

inline void Worker::own_context() { own_ == nullptr ? begin_own_context() : end_own_context(); }

inline void Worker::begin_own_context() {
  own_place_ = Place{};
  own_place_.primary = false;
  own_place_.device = static_cast<CUdevice>(random_.below(world_.settings.devices));
  if (!tally_.note("cuCtxCreate",
                   cuCtxCreate(&own_place_.context, nullptr, 0, own_place_.device))) {
    return;
  }
  tally_.note("load", own_place_.kernels.load());
  own_ = &own_place_;
  arrive(*own_);
}

inline void Worker::end_own_context() {
  Station& station = *stations_.back();
  drop_graphs_of(station);
  std::vector<Block> kept, ending;
  for (Block& block : held_) (block.place == own_ ? ending : kept).push_back(std::move(block));
  held_ = std::move(kept);
  for (Block& block : ending) check(block, random_);
  collect(station);
  // The context is idle: what its streams and events said is so.
  const auto over = [this](Block& block) {
    if (block.lane != nullptr && block.lane->place == own_) block.lane = nullptr;
    if (block.ready && block.ready->place == own_) block.ready.reset();
  };
  for (Block& block : held_) over(block);
  for (Block& block : ending) {
    settle(block, random_);
    // Stream-ordered memory is the device's: nobody would free it any more.
    if (random_.percent(50) || block.stream_ordered)
      free(block, random_);
    else if (block.has_words())
      fill(block, block.windows()[0], station.lanes[Lane::kFree]);
  }
  ending.clear();
  enter(*own_);
  tally_.note("cuCtxDestroy", cuCtxDestroy(own_->context));
  stations_.pop_back();
  own_ = nullptr;
  enter(*stations_[0]->place);
}

}  // namespace random_work
