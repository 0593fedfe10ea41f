// SPDX-License-Identifier: Apache-2.0
#include "shim/order/captures/graphs.h"

#include <algorithm>

#include "allocator/base/mutex.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/shared.h"

namespace cistern::shim {
namespace {

struct Graph {
  const void* handle;  // CUgraph or CUgraphExec
  CUcontext context;   // of its capture, else the one current when it was made
  alloc::Epoch epoch;
};

// Graphs beyond this many are taken to live for ever: everything older than the last of them stays
// parked, until memory is short.
constexpr int kMaxGraphs = 8192;
constinit alloc::Mutex mutex;
constinit Graph graphs[kMaxGraphs] = {};
constinit int used = 0;
constinit alloc::Epoch newest_unlisted = 0;

void update_newest_graph() {
  alloc::Epoch newest = newest_unlisted;
  for (int i = 0; i < used; ++i) newest = std::max(newest, graphs[i].epoch);
  shared().reclaim.set_newest_graph(capture_gate().capturing() ? alloc::Reclaim::kEverything
                                                               : newest);
}

template <typename Match>
void remove_locked(Match match) {
  for (int i = 0; i < used;) {
    if (match(graphs[i])) {
      graphs[i] = graphs[--used];
    } else {
      ++i;
    }
  }
}

template <typename Match>
void remove(Match match) {
  alloc::LockGuard guard(mutex);
  remove_locked(match);
  update_newest_graph();
}

void remove_handle(const void* handle) {
  remove([handle](const Graph& g) { return g.handle == handle; });
}

// A graph with this handle is made now. It takes the place of `instead_of` (nullptr: of none), and
// its context.
void add(const void* handle, const void* instead_of, CUcontext context) {
  alloc::LockGuard guard(mutex);
  remove_locked([&](const Graph& g) {
    if (g.handle == instead_of) context = g.context;
    return g.handle == handle || g.handle == instead_of;
  });
  const alloc::Epoch epoch = shared().reclaim.graph_made();
  if (used < kMaxGraphs) {
    graphs[used++] = {handle, context, epoch};
  } else {
    newest_unlisted = epoch;
  }
  update_newest_graph();
}

}  // namespace

void captures_changed() {
  alloc::LockGuard guard(mutex);
  update_newest_graph();
}

void graph_captured(CUgraph graph, CUcontext context) { add(graph, nullptr, context); }
void graph_destroyed(CUgraph graph) { remove_handle(graph); }
void graph_instantiated(CUgraphExec exec, CUgraph graph) { add(exec, graph, current_handle()); }
void graph_updated(CUgraphExec exec) { add(exec, exec, current_handle()); }
void graph_exec_destroyed(CUgraphExec exec) { remove_handle(exec); }

void graphs_of_context_gone(CUcontext context) {
  remove([context](const Graph& g) { return g.context == context; });
}

void reset_graphs_after_fork() { mutex.reset(); }

}  // namespace cistern::shim
