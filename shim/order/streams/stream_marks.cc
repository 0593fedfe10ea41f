// SPDX-License-Identifier: Apache-2.0
#include "shim/order/streams/stream_marks.h"

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/process/background.h"

namespace cistern::shim {

// --- streams ---

namespace {

constinit StreamRegistry registry;

}  // namespace

StreamRegistry& streams() { return registry; }

StreamRegistry::Entry* StreamRegistry::find(CUstream stream) {
  for (int i = 0; i < used_; ++i) {
    if (list_[i].stream == stream) return &list_[i];
  }
  return nullptr;
}

CUcontext StreamRegistry::add(const Entry& entry) {
  alloc::LockGuard guard(mutex_);
  if (Entry* stale = find(entry.stream)) {
    CUcontext before = stale->context;
    *stale = entry;
    return before;
  }
  Entry* place = find(nullptr);
  if (place == nullptr && used_ < kMaxStreams) place = &list_[used_++];
  if (place == nullptr) {
    unlisted_.fetch_add(1);
  } else {
    *place = entry;
  }
  return nullptr;
}

bool StreamRegistry::take_out(CUstream stream, Entry* entry) {
  alloc::LockGuard guard(mutex_);
  Entry* found = stream == nullptr ? nullptr : find(stream);
  if (found == nullptr) return false;
  *entry = *found;
  *found = {};
  place_of(stream).store(nullptr);
  return true;
}

CUcontext StreamRegistry::context_of(CUstream stream) {
  alloc::LockGuard guard(mutex_);
  const Entry* entry = stream == nullptr ? nullptr : find(stream);
  return entry == nullptr ? nullptr : entry->context;
}

// The stream's work may go on without an event. So the loss is noted before the list counts as
// complete again.
bool StreamRegistry::unlisted_gone() {
  alloc::LockGuard guard(mutex_);
  if (unlisted_.load() == 0) return given_up_.load();
  lose();
  unlisted_.fetch_sub(1);
  return true;
}

bool StreamRegistry::knows(CUstream stream) {
  std::atomic<CUstream>& place = place_of(stream);
  if (place.load() == stream) return true;
  alloc::LockGuard guard(mutex_);
  if (find(stream) == nullptr) return !complete();
  place.store(stream);
  return true;
}

void StreamRegistry::context_gone(CUcontext context) {
  alloc::LockGuard guard(mutex_);
  for (int i = 0; i < used_; ++i) {
    if (list_[i].context != context) continue;
    if (list_[i].stream != nullptr) place_of(list_[i].stream).store(nullptr);
    list_[i] = {};
  }
}

CUstream StreamRegistry::next_non_blocking(CUcontext context, int* position) {
  alloc::LockGuard guard(mutex_);
  while (*position < used_) {
    const Entry& entry = list_[(*position)++];
    if (entry.stream != nullptr && entry.context == context && !entry.blocking) return entry.stream;
  }
  return nullptr;
}

// --- events ---

using alloc::MarkState;

ContextScope::ContextScope(CUcontext context) {
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent(&current);
  pushed_ = current != context && driver().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
  current_ = pushed_ || current == context;
}

ContextScope::~ContextScope() {
  if (!pushed_ || !may_call()) return;
  CUcontext popped;
  if (driver().cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS) driver().cuCtxPopCurrent_v2(&popped);
}

bool create_event(CUevent* event) {
  return driver().cuEventCreate(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
}

MarkState state_of(CUevent event, CUcontext context) {
  switch (noted(driver().cuEventQuery(event), context)) {
    case CUDA_SUCCESS:
      return MarkState::passed;
    case CUDA_ERROR_NOT_READY:
      return MarkState::pending;
    default:
      return MarkState::failed;
  }
}

// --- marks ---

using alloc::Mark;

namespace {

// Checked before each driver call, so that a capture that begins waits for one call only, not for a
// whole group of them.
bool may_go_on() { return !capture_gate().capturing() && may_call(); }

MarkState state_if_allowed(CUevent event, CUcontext context) {
  return may_go_on() ? state_of(event, context) : MarkState::pending;
}

}  // namespace

void StreamMarks::init(CUcontext context) {
  context_ = context;
  proven_.store(streams().losses(), std::memory_order_relaxed);
  unseen_.store(false);
  for (Group& group : groups_) group = {};
  created_ = 0;
  spare_ = first_ = nullptr;
  end_ = &first_;
  queued_ = passed_ = 0;
}

bool StreamMarks::mark(Mark* out) {
  Group* group = groups_;
  while (group < groups_ + kGroups && group->used) ++group;
  if (group == groups_ + kGroups) return false;
  *group = {true, nullptr, queued_};
  *out = reinterpret_cast<Mark>(group);
  if (record_all(*group)) return true;
  forget(*out);
  return false;
}

bool StreamMarks::possible() const {
  return !unseen_.load() && streams().complete() && streams().losses() == proven_.load();
}

bool StreamMarks::record_all(Group& group) {
  if (!possible()) return false;
  const ContextScope scope(context_);
  if (!scope) return false;
  CUstream stream = CU_STREAM_LEGACY;
  for (int position = 0; stream != nullptr;
       stream = streams().next_non_blocking(context_, &position)) {
    Event* event = record(stream);
    if (event == nullptr) return false;
    event->next = group.events;
    group.events = event;
  }
  return true;
}

MarkState StreamMarks::query(Mark mark) {
  Group& group = *reinterpret_cast<Group*>(mark);
  while (Event* event = group.events) {
    const MarkState state = state_if_allowed(event->handle, context_);
    if (state != MarkState::passed) return state;
    group.events = event->next;
    put_back(event);
  }
  return poll_last_events(group.last_events);
}

void StreamMarks::forget(Mark mark) {
  Group& group = *reinterpret_cast<Group*>(mark);
  while (Event* event = group.events) {
    group.events = event->next;
    put_back(event);
  }
  group.used = false;
}

// An event whose query fails stays in the queue. So the mark that replaces the failed one waits for
// the event as well.
MarkState StreamMarks::poll_last_events(uint64_t target) {
  for (Event* event = first_; event != nullptr && passed_ < target; event = first_) {
    const MarkState state = state_if_allowed(event->handle, context_);
    if (state != MarkState::passed) return state;
    first_ = event->next;
    if (first_ == nullptr) end_ = &first_;
    ++passed_;
    put_back(event);
  }
  return MarkState::passed;
}

bool StreamMarks::stream_leaves(CUstream stream) {
  // A program that never runs short of memory makes no marks. Without this poll its queue would
  // grow.
  poll_last_events(queued_);
  const ContextScope scope(context_);
  Event* event = scope ? record(stream) : nullptr;
  if (event == nullptr) return false;
  event->next = nullptr;
  *end_ = event;
  end_ = &event->next;
  ++queued_;
  return true;
}

void StreamMarks::synchronised(uint64_t losses) {
  uint64_t seen = proven_.load();
  while (seen < losses && !proven_.compare_exchange_weak(seen, losses)) {
  }
}

StreamMarks::Event* StreamMarks::record(CUstream stream) {
  Event* event = may_go_on() ? take_event() : nullptr;
  if (event == nullptr || driver().cuEventRecord(event->handle, stream) == CUDA_SUCCESS) {
    return event;
  }
  put_back(event);
  return nullptr;
}

StreamMarks::Event* StreamMarks::take_event() {
  if (Event* event = spare_) {
    spare_ = event->next;
    return event;
  }
  if (events_ == nullptr) {
    events_ = static_cast<Event*>(alloc::os::map(kMaxEvents * sizeof(Event), 4096));
  }
  if (events_ == nullptr || created_ == kMaxEvents) return nullptr;
  if (!create_event(&events_[created_].handle)) return nullptr;
  return &events_[created_++];
}

void StreamMarks::put_back(Event* event) {
  event->next = spare_;
  spare_ = event;
}

}  // namespace cistern::shim
