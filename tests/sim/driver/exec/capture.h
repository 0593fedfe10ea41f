// SPDX-License-Identifier: Apache-2.0
//
// Stream capture: what may be done while one is under way, and what ends it (cuda.h,
// cuThreadExchangeStreamCaptureMode, cuCtxRecordEvent). A capture that meets a forbidden call is
// invalidated: its End still has to be called and says so.
//
// Except where a function says otherwise the caller holds exec_mutex().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/cuda.h"
#include "exec/event.h"
#include "exec/graph.h"
#include "exec/stream.h"

namespace simcuda {

// A graph that the program named at the beginning of a capture: what is captured is added to it
// (`after`: behind these nodes), or takes the place of its nodes.
struct NamedGraph {
  std::shared_ptr<Graph> graph{};
  std::vector<GraphNode*> after{};
  bool again = false;
  CUgraphRecaptureCallback tell = nullptr;  // of each node that changed
  void* user_data = nullptr;
};

struct Capture {
  uint64_t id;
  CUstreamCaptureMode mode;
  uint64_t thread;  // that began it
  Stream* origin;
  std::shared_ptr<Graph> graph;
  std::vector<Stream*> streams;  // origin and those that joined
  NamedGraph named{};
  bool no_graph = false;  // the work goes elsewhere: it is forgotten at the end
  bool invalidated = false;
};

// Begin, end and state of captures. Caller does not hold exec_mutex().
CUresult begin_capture(const StreamRef& stream, CUstreamCaptureMode mode, NamedGraph named = {},
                       bool no_graph = false);
// Without a place for the graph: one that has none.
CUresult end_capture(const StreamRef& stream, CUgraph* graph);

struct CaptureState {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  CUgraph graph = nullptr;
  GraphNode* const* frontier = nullptr;
  size_t frontier_size = 0;
};
CUresult capture_state(const StreamRef& stream, CaptureState* state);
bool being_captured(const StreamRef& stream);

// What the next captured work of the stream depends on: these nodes instead of, or besides, those
// that it does. Caller does not hold exec_mutex().
CUresult update_frontier(const StreamRef& stream, const std::vector<GraphNode*>& nodes, bool add);

// Swaps the calling thread's mode with *mode. Caller does not hold exec_mutex().
CUresult exchange_thread_mode(CUstreamCaptureMode* mode);

// Answers a potentially unsafe call: success, or the code after invalidating what it conflicts
// with. Caller does not hold exec_mutex().
CUresult refuse_unsafe_call();

// Some stream is being captured: a cheap question.
bool any_capture();

// Records work into the capture of a capturing stream.
CUresult record(Stream& stream, Work work, Wait wait);
CUresult record_captured_event(Stream& stream, Event& event);
// The stream waits for an event of a capture and becomes part of it.
CUresult join_capture(Stream& stream, const Event& event);

// Work on the legacy stream while a blocking stream of its context is captured.
CUresult check_implicit_capture(const Stream& stream);
// A call on the whole context while one of its streams is captured.
CUresult refuse_context_call(const Context& context);

// Invalidate, and the code of the call that did it.
CUresult invalidate(Capture& capture);
CUresult captured_event_used(Capture& capture);
CUresult isolation_broken(Capture& capture);

// The stream goes away while it is captured.
void drop_capture(Stream& stream);

}  // namespace simcuda
