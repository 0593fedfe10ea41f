// SPDX-License-Identifier: Apache-2.0
// The graphs of the process: which may hold addresses of our blocks, and which contexts take part
// in the work of one. Any thread.
//
// Captures in progress, captured graphs and executable graphs may hold addresses. While one of them
// lives, a block it may hold is parked at its free (allocator/reclaim/graph_lives.h). The blocks of
// a graph cannot be seen. So it holds every block that was live between the beginning of the
// CUgraph (capture or cuGraphCreate) and the last instantiation or update of the executable graph.
// A clone counts from the beginning of its original, a graph with children from that of the oldest
// child, and an unknown graph from the start of the process.
//
// A captured CUgraph holds blocks by itself until it is instantiated, given to an update, added to
// another graph, or destroyed. A CUgraph that the program builds node by node does not: until then
// its nodes can be replaced at any time. If there is no memory for a record, all blocks handed out
// so far count as held for ever.
//
// The contexts of a graph (graph_contexts.cc) are those of the streams that were given work while
// it was captured, and those whose memory its copies use. A launch ties them to each other and to
// the context of its stream (order/ties.h). Every context counts as part of a graph that was built
// or changed node by node, of a clone, and of an unknown graph.
//
// Each of the two has one lock, never held around a driver call.
#pragma once

#include "allocator/reclaim/tickets.h"
#include "shim/cuda_api.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context_slot.h"

namespace cistern::shim {

// The captures in progress changed (capture_gate.h). What is freed while there is one is parked.
void captures_changed();

// A graph begins: returns GraphLives::begin().
alloc::Epoch graph_begins();
// After the driver made it:
void graph_created(CUgraph graph, alloc::Epoch since);
void graph_cloned(CUgraph clone, CUgraph original);
void child_added(CUgraph graph, CUgraph child);
// `capture` ended with this graph.
void graph_captured(CUgraph graph, const CaptureGate::Capture& capture);

// An executable graph was made from `graph`, or made anew by an update; one of its nodes got new
// addresses, or those of `child`.
void graph_instantiated(CUgraphExec exec, CUgraph graph);
void graph_updated(CUgraphExec exec, CUgraph graph);
void graph_exec_edited(CUgraphExec exec, CUgraph child = nullptr);

// An executable graph was launched.
void graph_launched();

// Put around the driver call that destroys a graph. From the constructor on the handle means no
// graph, because another thread may get it for a new one before the call returns. The graph holds
// its blocks until destroyed().
class GraphLeaving {
 public:
  explicit GraphLeaving(CUgraph graph);
  explicit GraphLeaving(CUgraphExec exec);
  ~GraphLeaving();
  GraphLeaving(const GraphLeaving&) = delete;
  GraphLeaving& operator=(const GraphLeaving&) = delete;
  void destroyed();

 private:
  bool executable_;
  void* record_;  // nullptr: none, or it is gone
};

// The graphs of a context went with it.
void graphs_of_context_gone(CUcontext context);

void reset_graphs_after_fork();

// Work with these contexts was handed over on `stream` (as Legacy::name() gives it) while something
// captures and there are several contexts. True if that stream captures: the work became part of
// the capture.
bool note_captured_work(CUstream stream, const ContextSet& contexts);

// A capture began on `stream`, which is of this context. `into_graph`: into one that the program
// named, and that may have nodes already.
void capture_began(CUstream stream, CUcontext context, bool into_graph);

// Construct it before the driver call that ends a capture on `stream`: it asks the driver for the
// capture's id.
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
// A node of the executable graph was changed. The second: a node of some graph was changed or
// added.
void exec_contexts_changed(CUgraphExec exec);
void graph_contexts_changed();
// The graph with this handle is about to be destroyed, or was.
void graph_contexts_gone(const void* handle);

// The contexts of an executable graph; all contexts if the graph is unknown.
ContextSet contexts_of(CUgraphExec exec);

void reset_graph_contexts_after_fork();

}  // namespace cistern::shim
