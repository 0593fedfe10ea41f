// SPDX-License-Identifier: Apache-2.0
// Which contexts take part in the work of a graph: those of the streams that were given work while
// it was captured, and those whose memory its copies use. A launch ties them to each other and to
// the context of its stream (order/ties.h). Every context counts as part of a graph that was built
// or changed node by node, of a clone, and of an unknown graph. Any thread; one lock, never held
// around a driver call.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/contexts/context_slot.h"

namespace cistern::shim {

// Work with these contexts was handed over on `stream` (as Legacy::name() gives it) while something
// captures and there are several contexts. True if that stream captures: the work became part of
// the capture.
bool note_captured_work(CUstream stream, const ContextSet& contexts);

// A capture began on `stream`, which is of this context. `into_graph`: into one that the program
// named, and that may have nodes already.
void capture_began(CUstream stream, CUcontext context, bool into_graph);

// Made before the driver's call that ends a capture on `stream`, which is asked for it then.
class EndingCapture {
 public:
  explicit EndingCapture(CUstream stream);
  // The capture has ended, with this graph; nullptr: without one.
  void ended(CUgraph graph) const;

 private:
  cuuint64_t id_ = 0;
};

// `exec` was made from `graph`, or updated with it.
void exec_has_contexts_of(CUgraphExec exec, CUgraph graph);
// A node of the executable graph was changed; or of some graph, or one was added to it.
void exec_contexts_changed(CUgraphExec exec);
void graph_contexts_changed();
// It is about to be destroyed, or was.
void graph_contexts_gone(const void* handle);

// Every context there is, if the graph is not known.
ContextSet contexts_of(CUgraphExec exec);

void reset_graph_contexts_after_fork();

}  // namespace cistern::shim
