// SPDX-License-Identifier: Apache-2.0
#include "shim/order/captures/graphs.h"

#include <atomic>

#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/order/contexts/context.h"
#include "shim/order/ties.h"

namespace cistern::shim {
namespace {

// A capture in progress. No hook sees the end of a capture whose stream was destroyed, so a new
// record replaces the oldest.
struct Capture {
  cuuint64_t id;
  ContextSet contexts;
  uint64_t change;  // the value of `changes` at its beginning
};
constexpr uint32_t kMaxCaptures = 64;

// A CUgraph or CUgraphExec whose contexts are known.
struct Graph {
  Graph* next;
  uint64_t key;     // its handle
  uint64_t change;  // of a CUgraph: its contexts are known while `changes` has this value
  ContextSet contexts;
};
constexpr int kMaxGraphs = 8192;
constexpr uint64_t kExecutable = ~uint64_t{0};

constinit alloc::Mutex mutex;
constinit Capture noted_captures[kMaxCaptures] = {};
constinit uint32_t next_capture = 0;

constinit Graph graphs[kMaxGraphs] = {};
constinit int graphs_used = 0;
constinit Graph* spare = nullptr;
constinit alloc::KeyedTable<Graph, 12> table = {};
// How often nodes were added to graphs or changed by hand. It is unknown which graph changed: a
// node does not name its graph, and a graph may be part of others. So any graph may have changed.
constinit std::atomic<uint64_t> changes{0};

uint64_t key_of(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

void forget_locked(const void* handle) {
  Graph* graph = table.find(key_of(handle));
  if (graph == nullptr) return;
  table.remove(graph);
  graph->next = spare;
  spare = graph;
}

// If there is no room, the graph stays unknown.
void know_locked(const void* handle, const ContextSet& contexts, uint64_t change) {
  forget_locked(handle);
  Graph* graph = spare;
  if (graph != nullptr) {
    spare = graph->next;
  } else if (graphs_used < kMaxGraphs) {
    graph = &graphs[graphs_used++];
  } else {
    return;
  }
  graph->key = key_of(handle);
  graph->change = change;
  graph->contexts = contexts;
  table.insert(graph);
}

Graph* find_locked(const void* handle) {
  Graph* graph = table.find(key_of(handle));
  if (graph == nullptr || graph->change == kExecutable || graph->change == changes.load()) {
    return graph;
  }
  forget_locked(handle);
  return nullptr;
}

Capture* find_capture_locked(cuuint64_t id) {
  for (Capture& capture : noted_captures) {
    if (capture.id == id && id != 0) return &capture;
  }
  return nullptr;
}

// Whether the stream captures; `*id`: the capture's number.
bool capture_of(CUstream stream, cuuint64_t* id) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto ask = driver().cuStreamGetCaptureInfo;
  return ask != nullptr && ask(stream, &status, id) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace

bool note_captured_work(CUstream stream, const ContextSet& contexts) {
  cuuint64_t id;
  if (!capture_of(stream, &id)) return false;
  alloc::LockGuard guard(mutex);
  if (Capture* capture = find_capture_locked(id)) capture->contexts.add(contexts);
  return true;
}

void capture_began(CUstream stream, CUcontext context, bool into_graph) {
  if (into_graph) graph_contexts_changed();
  cuuint64_t id;
  const Context* own = working_context(context);
  if (into_graph || own == nullptr || !capture_of(stream, &id)) return;
  alloc::LockGuard guard(mutex);
  Capture& capture = noted_captures[next_capture++ % kMaxCaptures];
  capture = {id, {}, changes.load()};
  capture.contexts.add(own->number);
}

EndingCapture::EndingCapture(CUstream stream) {
  if (!capture_of(stream, &id_)) id_ = 0;
}

// If the capture has no record, it added to a graph that the program named, or there was no room
// for the record.
void EndingCapture::ended(CUgraph graph) const {
  alloc::LockGuard guard(mutex);
  Capture* capture = find_capture_locked(id_);
  if (graph != nullptr && capture != nullptr && capture->change == changes.load()) {
    know_locked(graph, capture->contexts, capture->change);
  } else if (graph != nullptr) {
    forget_locked(graph);
    graph_contexts_changed();
  }
  if (capture != nullptr) capture->id = 0;
}

void exec_has_contexts_of(CUgraphExec exec, CUgraph graph) {
  alloc::LockGuard guard(mutex);
  const Graph* known = find_locked(graph);
  if (known != nullptr) {
    know_locked(exec, ContextSet{known->contexts}, kExecutable);
  } else {
    forget_locked(exec);
  }
}

void exec_contexts_changed(CUgraphExec exec) { graph_contexts_gone(exec); }

void graph_contexts_changed() { changes.fetch_add(1); }

void graph_contexts_gone(const void* handle) {
  alloc::LockGuard guard(mutex);
  forget_locked(handle);
}

ContextSet contexts_of(CUgraphExec exec) {
  {
    alloc::LockGuard guard(mutex);
    if (const Graph* graph = find_locked(exec)) return graph->contexts;
  }
  return living_contexts();
}

void reset_graph_contexts_after_fork() { mutex.reset(); }

}  // namespace cistern::shim
