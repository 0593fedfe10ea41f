// SPDX-License-Identifier: Apache-2.0
// The graphs of the process that may hold addresses of our blocks: captures in progress, captured
// graphs, executable graphs. While one of them lives, a block it may hold is parked at its free
// (allocator/reclaim/reclaim.h). Which blocks a graph holds cannot be seen, so it is every block
// handed out before the graph was made. Not followed: addresses that the program puts into an
// executable graph afterwards, node by node. Any thread; one lock, never held around a driver call.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// The number of captures in progress changed (capture_gate.h). While there is one, every block is
// parked at its free.
void captures_changed();

// A capture in `context` ended with this graph. It counts until it is instantiated or destroyed.
void graph_captured(CUgraph graph, CUcontext context);
void graph_destroyed(CUgraph graph);

// An executable graph was made from `graph`, or made anew by an update.
void graph_instantiated(CUgraphExec exec, CUgraph graph);
void graph_updated(CUgraphExec exec);
void graph_exec_destroyed(CUgraphExec exec);

// The graphs of a context went with it.
void graphs_of_context_gone(CUcontext context);

void reset_graphs_after_fork();

}  // namespace cistern::shim
