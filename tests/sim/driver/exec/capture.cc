// SPDX-License-Identifier: Apache-2.0
#include "exec/capture.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/gate.h"
#include "exec/context.h"
#include "exec/engine.h"

namespace simcuda {
namespace {

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto& all = *new std::vector<std::shared_ptr<Capture>>;
  return all;
}

constinit std::atomic<uint64_t> g_next_capture_id{1};
thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool conflicts_with_caller(const Capture& capture, uint64_t thread) {
  if (capture.thread == thread) return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return t_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void add_capture(std::shared_ptr<Capture> capture) {
  captures().push_back(std::move(capture));
  g_watch.fetch_or(kCaptures);
}

void remove_capture(const std::shared_ptr<Capture>& capture) {
  for (Stream* stream : capture->streams) {
    stream->frontier.clear();
    if (stream->capture == capture) stream->capture.reset();
  }
  std::erase(captures(), capture);
  if (captures().empty()) g_watch.fetch_and(~unsigned{kCaptures});
}

// Every node a joined stream recorded must lead to the origin's last nodes.
bool all_joined(const Capture& capture) {
  std::vector<const GraphNode*> reach(capture.origin->frontier.begin(),
                                      capture.origin->frontier.end());
  for (size_t i = 0; i < reach.size(); ++i) {
    for (const GraphNode* before : reach[i]->dependencies) {
      if (std::find(reach.begin(), reach.end(), before) == reach.end()) reach.push_back(before);
    }
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
    return std::all_of(stream->frontier.begin(), stream->frontier.end(), [&](const GraphNode* n) {
      return std::find(reach.begin(), reach.end(), n) != reach.end();
    });
  });
}

// Captures of blocking streams, which work on the legacy stream would have to be ordered with.
std::vector<Capture*> implicit_conflicts(const Stream& stream) {
  std::vector<Capture*> conflicts;
  if (stream.role != Stream::Role::kLegacy) return conflicts;
  stream.context.for_each_stream([&](const StreamRef& other) {
    if (other->capture && other->blocking()) conflicts.push_back(other->capture.get());
  });
  return conflicts;
}

// A graph of the program's own is its own also where the capture fails.
std::shared_ptr<Graph> graph_to_capture(const NamedGraph& named) {
  if (named.graph == nullptr) return make_graph();
  if (!named.again) return named.graph;
  auto graph = std::make_shared<Graph>();
  graph->handle = named.graph->handle;
  return graph;
}

std::vector<size_t> places(const Graph& graph, const GraphNode& node) {
  std::vector<size_t> found;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto& all = node.dependencies;
    if (std::find(all.begin(), all.end(), &graph.nodes[i]) != all.end()) found.push_back(i);
  }
  return found;
}

bool touch_the_same(const Work& a, const Work& b) {
  const auto same = [](const Access& x, const Access& y) {
    return x.address == y.address && x.bytes == y.bytes && x.touch == y.touch;
  };
  return std::equal(a.accesses.begin(), a.accesses.end(), b.accesses.begin(), b.accesses.end(),
                    same);
}

// The nodes of the graph that was captured anew get the work of this capture, one after the other.
CUresult renew_nodes(const Capture& capture) {
  Graph& before = *capture.named.graph;
  Graph& now = *capture.graph;
  if (before.nodes.size() != now.nodes.size()) return CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;
  for (size_t i = 0; i < now.nodes.size(); ++i) {
    GraphNode& node = before.nodes[i];
    const bool alike = node.work.call == now.nodes[i].work.call &&
                       places(before, node) == places(now, now.nodes[i]);
    if (!alike) return CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;
    const CUgraphNodeParams untold{};
    if (!touch_the_same(node.work, now.nodes[i].work) && capture.named.tell != nullptr &&
        capture.named.tell(capture.named.user_data, reinterpret_cast<CUgraphNode>(&node), &untold,
                           &untold, CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE) != CUDA_SUCCESS) {
      return CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;
    }
    node.work = std::move(now.nodes[i].work);
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool any_capture() { return g_watch.load(std::memory_order_acquire) & kCaptures; }

CUresult begin_capture(const StreamRef& stream, CUstreamCaptureMode mode, NamedGraph named,
                       bool no_graph) {
  if (stream->role == Stream::Role::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const uint64_t thread = thread_number();
  const std::lock_guard lock(exec_mutex());
  if (stream->capture) {
    invalidate(*stream->capture);
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  stream->capture = std::make_shared<Capture>(Capture{.id = g_next_capture_id.fetch_add(1),
                                                      .mode = mode,
                                                      .thread = thread,
                                                      .origin = stream.get(),
                                                      .graph = graph_to_capture(named),
                                                      .streams = {stream.get()},
                                                      .named = named,
                                                      .no_graph = no_graph});
  stream->frontier = named.after;
  add_capture(stream->capture);
  return CUDA_SUCCESS;
}

CUresult end_capture(const StreamRef& stream, CUgraph* graph) {
  const uint64_t thread = thread_number();
  const std::lock_guard lock(exec_mutex());
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture || capture->no_graph != (graph == nullptr)) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  if (capture->origin != stream.get()) {
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  CUresult code = CUDA_SUCCESS;
  if (capture->invalidated) {
    code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!all_joined(*capture)) {
    code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  if (code == CUDA_SUCCESS && capture->named.again) code = renew_nodes(*capture);
  remove_capture(capture);
  if (graph != nullptr) *graph = code == CUDA_SUCCESS ? capture->graph->handle : nullptr;
  const bool own = capture->named.graph == nullptr;
  if (own && (code != CUDA_SUCCESS || capture->no_graph)) forget_graph(capture->graph->handle);
  return code;
}

bool being_captured(const StreamRef& stream) {
  const std::lock_guard lock(exec_mutex());
  return stream->capture != nullptr;
}

CUresult capture_state(const StreamRef& stream, CaptureState* state) {
  const std::lock_guard lock(exec_mutex());
  *state = {};
  if (!stream->capture) {
    // Only a question: it invalidates nothing.
    return implicit_conflicts(*stream).empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const Capture& capture = *stream->capture;
  state->status =
      capture.invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capture.invalidated) return CUDA_SUCCESS;
  state->id = capture.id;
  state->graph = capture.graph->handle;
  state->frontier = stream->frontier.data();
  state->frontier_size = stream->frontier.size();
  return CUDA_SUCCESS;
}

CUresult update_frontier(const StreamRef& stream, const std::vector<GraphNode*>& nodes, bool add) {
  const std::lock_guard lock(exec_mutex());
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const auto& own = stream->capture->graph->nodes;
  const bool all_known = std::all_of(nodes.begin(), nodes.end(), [&](const GraphNode* node) {
    return std::any_of(own.begin(), own.end(), [&](const GraphNode& one) { return &one == node; });
  });
  if (!all_known) return CUDA_ERROR_INVALID_VALUE;
  if (!add) stream->frontier.clear();
  for (GraphNode* node : nodes) {
    auto& frontier = stream->frontier;
    if (std::find(frontier.begin(), frontier.end(), node) == frontier.end()) {
      frontier.push_back(node);
    }
  }
  return CUDA_SUCCESS;
}

CUresult exchange_thread_mode(CUstreamCaptureMode* mode) {
  const bool known = mode != nullptr && *mode >= CU_STREAM_CAPTURE_MODE_GLOBAL &&
                     *mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  std::swap(t_mode, *mode);
  return CUDA_SUCCESS;
}

CUresult refuse_unsafe_call() {
  if (t_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const uint64_t thread = thread_number();
  const std::lock_guard lock(exec_mutex());
  CUresult code = CUDA_SUCCESS;
  for (const auto& capture : captures()) {
    if (conflicts_with_caller(*capture, thread)) code = invalidate(*capture);
  }
  return code;
}

CUresult record(Stream& stream, Work work, Wait wait) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (wait == Wait::kYes) return invalidate(capture);
  if (!work.run) return CUDA_SUCCESS;
  stream.frontier = {capture.graph->add(std::move(work), stream.frontier)};
  return CUDA_SUCCESS;
}

CUresult record_captured_event(Stream& stream, Event& event) {
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event.recorded = true;
  event.capture = stream.capture;
  event.nodes = stream.frontier;
  event.order = {};
  return CUDA_SUCCESS;
}

CUresult join_capture(Stream& stream, const Event& event) {
  Capture& capture = *event.capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.role == Stream::Role::kLegacy) {
    invalidate(capture);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream.capture && stream.capture != event.capture) {
    invalidate(capture);
    invalidate(*stream.capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (!stream.capture) {
    // The event outlived its capture: there is nothing left to join.
    const bool open =
        std::find(captures().begin(), captures().end(), event.capture) != captures().end();
    if (!open) return CUDA_ERROR_CAPTURED_EVENT;
    stream.capture = event.capture;
    capture.streams.push_back(&stream);
  }
  for (GraphNode* node : event.nodes) {
    const bool known =
        std::find(stream.frontier.begin(), stream.frontier.end(), node) != stream.frontier.end();
    if (!known) stream.frontier.push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult check_implicit_capture(const Stream& stream) {
  const std::vector<Capture*> conflicts = implicit_conflicts(stream);
  for (Capture* capture : conflicts) invalidate(*capture);
  return conflicts.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult refuse_context_call(const Context& context) {
  CUresult code = CUDA_SUCCESS;
  context.for_each_stream([&](const StreamRef& stream) {
    if (stream->capture) code = invalidate(*stream->capture);
  });
  return code;
}

CUresult invalidate(Capture& capture) {
  capture.invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult captured_event_used(Capture& capture) {
  capture.invalidated = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult isolation_broken(Capture& capture) {
  capture.invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

void drop_capture(Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return;
  if (capture->origin == &stream) return remove_capture(capture);
  capture->invalidated = true;
  std::erase(capture->streams, &stream);
  stream.capture.reset();
}

}  // namespace simcuda
