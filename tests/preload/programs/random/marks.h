// SPDX-License-Identifier: Apache-2.0
// Graphs that a thread marks: of few names, nested, beside those of other threads, and with blocks
// that live before and after.
#pragma once

#include <iterator>

#include "../../../../shim/nvtx/cistern.h"
#include "worker.h"

namespace random_work {

constexpr const char* kGraphs[] = {"one", "two", "three"};

inline void Worker::mark_graph() {
  if (marked_ < 2 && random_.percent(50)) {
    cistern_graph_begin(kGraphs[random_.below(std::size(kGraphs))]);
    ++marked_;
  } else {
    cistern_graph_end();  // of nothing, at times
    marked_ -= marked_ != 0 ? 1 : 0;
  }
}

inline void Worker::end_graphs() {
  for (; marked_ != 0; --marked_) cistern_graph_end();
}

// Random marks alone may leave a graph unknown: it has no request, or only requests during a
// capture, which go to the driver. So each thread marks every graph once more after its operations,
// with one request, while no thread captures. The last thread to do so finds no other graph open,
// so each of its graphs gets an arena.
inline void Worker::mark_each_graph() {
  for (const char* name : kGraphs) {
    Block block = draw_block();
    block.bytes = 1 + random_.below(size_t{1} << 20);  // a thread may always hold that
    block.place = stations_[0]->place;
    block.stream_ordered = false;
    make_room(block);
    bool served = false;
    {
      const std::lock_guard lock(captures_);
      cistern_graph_begin(name);
      served = allocate(block, random_);
      cistern_graph_end();
    }
    if (!served) continue;
    write(block, random_);
    held_.push_back(std::move(block));
  }
}

}  // namespace random_work
