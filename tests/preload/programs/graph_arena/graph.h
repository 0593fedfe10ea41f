// SPDX-License-Identifier: Apache-2.0
// How a program shows where a graph begins and ends: by NVTX ranges ("ranges"), by nothing but what
// it does ("unmarked"), or by the calls of the installed header.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstring>

#include "../../../../shim/nvtx/cistern.h"

class Graph {
 public:
  Graph(const char* how, const char* name)
      : ranges_(std::strcmp(how, "ranges") == 0),
        marked_(!ranges_ && std::strcmp(how, "unmarked") != 0) {
    if (ranges_) nvtxRangePushA(name);
    if (marked_) cistern_graph_begin(name);
  }
  ~Graph() {
    if (ranges_) nvtxRangePop();
    if (marked_) cistern_graph_end();
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

 private:
  bool ranges_, marked_;
};
