// SPDX-License-Identifier: Apache-2.0
#include "shim/order/captures/graphs.h"

#include <algorithm>
#include <atomic>

#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "allocator/reclaim/graph_lives.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/shared.h"

namespace cistern::shim {
namespace {

struct GraphRecord {
  GraphRecord* next;
  uint64_t key;  // the handle
  // The context of the capture, or the context that was current when an unknown graph was
  // instantiated; nullptr: none in particular.
  CUcontext context;
  alloc::Epoch begin;
  alloc::GraphLife life;
};

using GraphRecords = alloc::KeyedTable<GraphRecord, 12>;

constinit alloc::Mutex graphs_mutex;  // guards all that follows
constinit GraphRecords graph_records, execs;
constinit alloc::Arena<GraphRecord> arena;
constinit alloc::GraphLife unlisted = {};  // of the graphs that have no record

constinit std::atomic<alloc::Ticket> launched{0};

alloc::GraphLives& lives() { return shared().reclaim.graphs(); }

// Covers every launch of a graph so far, but no other work: memory that was parked for a graph that
// goes must not wait for other work.
alloc::Ticket launches() { return launched.load(); }

// Held by code that changes what graphs hold. Memory that leaves with a graph is marked before
// later work.
class GraphsLock {
 public:
  GraphsLock() : guard_(graphs_mutex), changes_(lives().changes()) {}
  ~GraphsLock() {
    if (lives().changes() != changes_) shared().reclaim.parked_may_leave();
  }
  GraphsLock(const GraphsLock&) = delete;
  GraphsLock& operator=(const GraphsLock&) = delete;

 private:
  const alloc::LockGuard guard_;
  const uint64_t changes_;
};

uint64_t key_of_graph(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

// The record of this handle; a new one if there is none. nullptr: no memory for it.
GraphRecord* record_of(GraphRecords& records, const void* handle) {
  GraphRecord* record = records.find(key_of_graph(handle));
  if (record != nullptr) return record;
  record = arena.take();
  if (record == nullptr) {
    lives().hold(&unlisted, 0, launches());
    return nullptr;
  }
  *record = {};
  record->key = key_of_graph(handle);
  records.insert(record);
  return record;
}

void forget(GraphRecord* record) {
  lives().release(&record->life, launches());
  arena.give_back(record);
}

// The executable graph was just made from `graph`, and has taken over its addresses.
void make_from(GraphRecord* exec, CUgraph graph) {
  GraphRecord* source = graph_records.find(key_of_graph(graph));
  exec->begin = source == nullptr ? 0 : source->begin;
  lives().hold(&exec->life, exec->begin, launches());
  if (source != nullptr) lives().release(&source->life, launches());
}

// What `child` holds has become part of what `parent` holds.
void take_over(GraphRecord* parent, GraphRecord* child) {
  parent->begin = child == nullptr ? 0 : std::min(parent->begin, child->begin);
  if (child == nullptr || child->life.end == 0) return;
  lives().hold(&parent->life, parent->begin, launches());
  lives().release(&child->life, launches());
}

}  // namespace

void captures_changed() {
  const GraphsLock lock;
  lives().capturing(capture_gate().oldest(), launches());
}

void graph_launched() {
  const alloc::Ticket now = shared().reclaim.open();
  alloc::Ticket seen = launched.load();
  while (seen < now && !launched.compare_exchange_weak(seen, now)) {
  }
}

alloc::Epoch graph_begins() { return lives().begin(); }

void graph_created(CUgraph graph, alloc::Epoch since) {
  const GraphsLock lock;
  GraphRecord* record = record_of(graph_records, graph);
  if (record == nullptr) return;
  record->context = nullptr;
  record->begin = since;
  lives().release(&record->life, launches());
}

void graph_cloned(CUgraph clone, CUgraph original) {
  const GraphsLock lock;
  GraphRecord* record = record_of(graph_records, clone);
  if (record == nullptr) return;
  const GraphRecord* source = graph_records.find(key_of_graph(original));
  record->context = source == nullptr ? nullptr : source->context;
  record->begin = source == nullptr ? 0 : source->begin;
  lives().release(&record->life, launches());
  if (source != nullptr && source->life.end != 0)
    lives().hold(&record->life, record->begin, launches());
}

void child_added(CUgraph graph, CUgraph child) {
  const GraphsLock lock;
  GraphRecord* parent = graph_records.find(key_of_graph(graph));
  if (parent != nullptr) take_over(parent, graph_records.find(key_of_graph(child)));
}

// An unknown graph that the program named is part of another graph. That graph began before the
// capture, and will be the one to be instantiated.
void graph_captured(CUgraph graph, const CaptureGate::Capture& capture) {
  const GraphsLock lock;
  GraphRecord* record = graph_records.find(key_of_graph(graph));
  const bool known = record != nullptr;
  if (capture.into_graph && !known) return;
  if (!known) record = record_of(graph_records, graph);
  if (record == nullptr) return;
  if (!capture.into_graph) record->context = capture.context;
  record->begin = capture.into_graph ? std::min(record->begin, capture.since) : capture.since;
  lives().hold(&record->life, record->begin, launches());
}

void graph_instantiated(CUgraphExec exec, CUgraph graph) {
  CUcontext current = current_handle();
  const GraphsLock lock;
  GraphRecord* record = record_of(execs, exec);
  if (record == nullptr) return;
  const GraphRecord* source = graph_records.find(key_of_graph(graph));
  record->context = source == nullptr ? current : source->context;
  make_from(record, graph);
}

void graph_updated(CUgraphExec exec, CUgraph graph) {
  const GraphsLock lock;
  if (GraphRecord* record = record_of(execs, exec)) make_from(record, graph);
}

void graph_exec_edited(CUgraphExec exec, CUgraph child) {
  const GraphsLock lock;
  GraphRecord* record = record_of(execs, exec);
  if (record == nullptr) return;
  if (child != nullptr) take_over(record, graph_records.find(key_of_graph(child)));
  lives().hold(&record->life, record->begin, launches());
}

GraphLeaving::GraphLeaving(CUgraph graph) : executable_(false) {
  const GraphsLock lock;
  GraphRecord* record = graph_records.find(key_of_graph(graph));
  if (record != nullptr) graph_records.remove(record);
  record_ = record;
}

GraphLeaving::GraphLeaving(CUgraphExec exec) : executable_(true) {
  const GraphsLock lock;
  GraphRecord* record = execs.find(key_of_graph(exec));
  if (record != nullptr) execs.remove(record);
  record_ = record;
}

GraphLeaving::~GraphLeaving() {
  if (record_ == nullptr) return;
  const GraphsLock lock;
  (executable_ ? execs : graph_records).insert(static_cast<GraphRecord*>(record_));
}

void GraphLeaving::destroyed() {
  if (record_ == nullptr) return;
  const GraphsLock lock;
  forget(static_cast<GraphRecord*>(record_));
  record_ = nullptr;
}

void graphs_of_context_gone(CUcontext context) {
  const GraphsLock lock;
  for (GraphRecords* records : {&graph_records, &execs}) {
    GraphRecord* gone =
        records->remove_all([=](const GraphRecord& r) { return r.context == context; });
    while (gone != nullptr) {
      GraphRecord* next = gone->next;
      forget(gone);
      gone = next;
    }
  }
  lives().capturing(capture_gate().oldest(), launches());
}

void reset_graphs_after_fork() {
  graphs_mutex.reset();
  arena.reset_after_fork();
}

}  // namespace cistern::shim
