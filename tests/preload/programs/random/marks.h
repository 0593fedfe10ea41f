// SPDX-License-Identifier: Apache-2.0
// Graphs that a thread marks: of few names, nested, beside those of other threads, and with blocks
// that live before and after.
#pragma once

#include <iterator>

#include "../../../../shim/nvtx/cistern.h"
#include "worker.h"

namespace random_work {

inline void Worker::mark_graph() {
  constexpr const char* kNames[] = {"one", "two", "three"};
  if (marked_ < 2 && random_.percent(50)) {
    cistern_graph_begin(kNames[random_.below(std::size(kNames))]);
    ++marked_;
  } else {
    cistern_graph_end();  // of nothing, at times
    marked_ -= marked_ != 0 ? 1 : 0;
  }
}

inline void Worker::end_graphs() {
  for (; marked_ != 0; --marked_) cistern_graph_end();
}

}  // namespace random_work
