// SPDX-License-Identifier: Apache-2.0
#include "shim/order/captures/graphs.h"

#include <algorithm>
#include <atomic>

#include "allocator/base/arena.h"
#include "allocator/base/keyed_table.h"
#include "allocator/base/mutex.h"
#include "allocator/reclaim/graph_lives.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/shared.h"

namespace cistern::shim {
namespace {

struct Record {
  Record* next;
  uint64_t key;       // the handle
  CUcontext context;  // of the capture, or the one current at the instantiation of a graph never
                      // seen; nullptr: of none in particular
  alloc::Epoch begin;
  alloc::GraphLife life;
};

using Records = alloc::KeyedTable<Record, 12>;

constinit alloc::Mutex mutex;  // of all that follows
constinit Records graphs, execs;
constinit alloc::Arena<Record> arena;
constinit alloc::GraphLife unlisted = {};  // of the graphs that have no record

constinit std::atomic<alloc::Ticket> launched{0};

alloc::GraphLives& lives() { return shared().reclaim.graphs(); }

// Covers every launch of a graph so far. What goes on besides is none of a graph's work: what was
// parked for one that goes must not wait for it.
alloc::Ticket launches() { return launched.load(); }

uint64_t key_of(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

// The record of this handle, a new one where there is none. nullptr without memory for it.
Record* record_of(Records& records, const void* handle) {
  Record* record = records.find(key_of(handle));
  if (record != nullptr) return record;
  record = arena.take();
  if (record == nullptr) {
    lives().hold(&unlisted, 0, launches());
    return nullptr;
  }
  *record = {};
  record->key = key_of(handle);
  records.insert(record);
  return record;
}

void forget(Record* record) {
  lives().release(&record->life, launches());
  arena.give_back(record);
}

// The executable graph is made from `graph` now, whose addresses it has taken over.
void make_from(Record* exec, CUgraph graph) {
  Record* source = graphs.find(key_of(graph));
  exec->begin = source == nullptr ? 0 : source->begin;
  lives().hold(&exec->life, exec->begin, launches());
  if (source != nullptr) lives().release(&source->life, launches());
}

// What `child` holds became a part of what `parent` holds.
void take_over(Record* parent, Record* child) {
  parent->begin = child == nullptr ? 0 : std::min(parent->begin, child->begin);
  if (child == nullptr || child->life.end == 0) return;
  lives().hold(&parent->life, parent->begin, launches());
  lives().release(&child->life, launches());
}

}  // namespace

void captures_changed() {
  alloc::LockGuard guard(mutex);
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
  alloc::LockGuard guard(mutex);
  Record* record = record_of(graphs, graph);
  if (record == nullptr) return;
  record->context = nullptr;
  record->begin = since;
  lives().release(&record->life, launches());
}

void graph_cloned(CUgraph clone, CUgraph original) {
  alloc::LockGuard guard(mutex);
  Record* record = record_of(graphs, clone);
  if (record == nullptr) return;
  const Record* source = graphs.find(key_of(original));
  record->context = source == nullptr ? nullptr : source->context;
  record->begin = source == nullptr ? 0 : source->begin;
  lives().release(&record->life, launches());
  if (source != nullptr && source->life.end != 0)
    lives().hold(&record->life, record->begin, launches());
}

void child_added(CUgraph graph, CUgraph child) {
  alloc::LockGuard guard(mutex);
  Record* parent = graphs.find(key_of(graph));
  if (parent != nullptr) take_over(parent, graphs.find(key_of(child)));
}

// A graph that the program named and that was never seen is part of another one, which began before
// the capture and is the one to be instantiated.
void graph_captured(CUgraph graph, const CaptureGate::Capture& capture) {
  alloc::LockGuard guard(mutex);
  Record* record = graphs.find(key_of(graph));
  const bool known = record != nullptr;
  if (capture.into_graph && !known) return;
  if (!known) record = record_of(graphs, graph);
  if (record == nullptr) return;
  if (!capture.into_graph) record->context = capture.context;
  record->begin = capture.into_graph ? std::min(record->begin, capture.since) : capture.since;
  lives().hold(&record->life, record->begin, launches());
}

void graph_instantiated(CUgraphExec exec, CUgraph graph) {
  CUcontext current = current_handle();
  alloc::LockGuard guard(mutex);
  Record* record = record_of(execs, exec);
  if (record == nullptr) return;
  const Record* source = graphs.find(key_of(graph));
  record->context = source == nullptr ? current : source->context;
  make_from(record, graph);
}

void graph_updated(CUgraphExec exec, CUgraph graph) {
  alloc::LockGuard guard(mutex);
  if (Record* record = record_of(execs, exec)) make_from(record, graph);
}

void graph_exec_edited(CUgraphExec exec, CUgraph child) {
  alloc::LockGuard guard(mutex);
  Record* record = record_of(execs, exec);
  if (record == nullptr) return;
  if (child != nullptr) take_over(record, graphs.find(key_of(child)));
  lives().hold(&record->life, record->begin, launches());
}

GraphLeaving::GraphLeaving(CUgraph graph) : executable_(false) {
  alloc::LockGuard guard(mutex);
  Record* record = graphs.find(key_of(graph));
  if (record != nullptr) graphs.remove(record);
  record_ = record;
}

GraphLeaving::GraphLeaving(CUgraphExec exec) : executable_(true) {
  alloc::LockGuard guard(mutex);
  Record* record = execs.find(key_of(exec));
  if (record != nullptr) execs.remove(record);
  record_ = record;
}

GraphLeaving::~GraphLeaving() {
  if (record_ == nullptr) return;
  alloc::LockGuard guard(mutex);
  (executable_ ? execs : graphs).insert(static_cast<Record*>(record_));
}

void GraphLeaving::destroyed() {
  if (record_ == nullptr) return;
  alloc::LockGuard guard(mutex);
  forget(static_cast<Record*>(record_));
  record_ = nullptr;
}

void graphs_of_context_gone(CUcontext context) {
  alloc::LockGuard guard(mutex);
  for (Records* records : {&graphs, &execs}) {
    Record* gone = records->remove_all([=](const Record& r) { return r.context == context; });
    while (gone != nullptr) {
      Record* next = gone->next;
      forget(gone);
      gone = next;
    }
  }
  lives().capturing(capture_gate().oldest(), launches());
}

void reset_graphs_after_fork() {
  mutex.reset();
  arena.reset_after_fork();
}

}  // namespace cistern::shim
