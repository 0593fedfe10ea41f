// SPDX-License-Identifier: Apache-2.0
#include "shim/order/ties.h"

#include <algorithm>
#include <atomic>

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/order/streams/events.h"
#include "shim/order/streams/stream_registry.h"
#include "shim/process/background.h"

namespace cistern::shim {
namespace {

constexpr int kMost = 64, kUnfollowed = -1, kNotNeeded = -2;

struct Copy {
  enum class State : uint8_t { none, begins, under_way };
  std::atomic<State> state;
  bool is(State asked) const { return state.load() == asked; }
  alloc::Ticket before;  // the ticket that was open before its ties were made
  ContextSet workers;
  Context* context;  // the stream's
  uint64_t context_id;
  CUevent event;
};

constinit Copy copies[kMost] = {};
// Held by a thread that checks the copies, or that makes ties for a copy without an entry.
constinit std::atomic<bool> looking{false};

int take_place() {
  for (int i = 0; i < kMost; ++i) {
    auto expected = Copy::State::none;
    if (copies[i].state.compare_exchange_strong(expected, Copy::State::begins)) return i;
  }
  return kUnfollowed;
}

// A visit of the copy's context, while a call of ours uses the copy's event.
class EventVisit : Visit {
 public:
  explicit EventVisit(const Copy& copy)
      : Visit(*copy.context),
        gone_(handle() == nullptr || copy.context->id.load() != copy.context_id) {}
  using Visit::handle;
  bool gone() const { return gone_; }
  // Whether calls that use the context may be made now.
  bool open() const { return !gone_ && Visit::open() && may_call(); }

 private:
  const bool gone_;
};

bool record_end(Copy& copy, CUstream stream) {
  CUcontext handle = stream == nullptr ? current_handle() : context_of_stream(stream);
  copy.context = context_named(handle);
  if (copy.context == nullptr) return false;
  copy.context_id = copy.context->id.load();
  const GatePass pass;
  const EventVisit visit(copy);
  if (!pass || !visit.open()) return false;
  const ContextScope scope(handle);
  if (!scope || !create_event(&copy.event)) return false;
  if (driver().cuEventRecord(copy.event, stream) == CUDA_SUCCESS) return true;
  driver().cuEventDestroy_v2(copy.event);
  return false;
}

alloc::MarkState state_of_copy(const Copy& copy) {
  const GatePass pass;
  if (!pass) return alloc::MarkState::pending;
  const EventVisit visit(copy);
  if (visit.gone()) return alloc::MarkState::failed;
  if (!visit.open()) return alloc::MarkState::pending;
  const alloc::MarkState state = state_of(copy.event, visit.handle());
  if (state != alloc::MarkState::pending && may_call()) driver().cuEventDestroy_v2(copy.event);
  return state;
}

void only_marks_untie(const ContextSet& workers) {
  workers.for_each([](uint32_t worker) { shared().reclaim.only_marks_untie(worker); });
}

bool none_is(Copy::State state) {
  for (const Copy& copy : copies) {
    if (copy.is(state)) return false;
  }
  return true;
}

// Caller holds `looking` for the next two.

// If the copy has ended, adds its workers to `workers` and removes it from the list.
void look_at(Copy& copy, ContextSet& workers) {
  const alloc::MarkState event = state_of_copy(copy);
  if (event == alloc::MarkState::pending) return;
  if (event == alloc::MarkState::failed) only_marks_untie(copy.workers);
  workers.add(copy.workers);
  copy.state.store(Copy::State::none);
}

// A ticket, `end` at most, below all ties of the worker's copies that are in progress.
alloc::Ticket done_by(uint32_t worker, alloc::Ticket end) {
  for (const Copy& copy : copies) {
    if (copy.is(Copy::State::under_way) && copy.workers.has(worker)) {
      end = std::min(end, copy.before);
    }
  }
  return end;
}

}  // namespace

FollowedCopy::FollowedCopy(const ContextSet& workers, CUstream stream)
    : workers_(workers), stream_(stream), place_(kNotNeeded) {
  if (driver().cuCtxRecordEvent != nullptr) return;
  place_ = take_place();
  if (place_ == kUnfollowed) {
    look_at_copies();  // copies that have ended leave the list
    place_ = take_place();
  }
  if (place_ == kUnfollowed) {
    alloc::os::wait_while([] { return looking.exchange(true); });
    return;
  }
  copies[place_].workers = workers;
  copies[place_].before = shared().reclaim.open();
}

FollowedCopy::~FollowedCopy() {
  if (place_ == kNotNeeded) return;
  const bool followed = place_ != kUnfollowed && record_end(copies[place_], stream_);
  if (!followed) only_marks_untie(workers_);
  if (place_ == kUnfollowed) {
    looking.store(false);
  } else {
    copies[place_].state.store(followed ? Copy::State::under_way : Copy::State::none);
  }
}

// Ties that are made from now on have tickets above `end`. If the ties of a copy are just being
// made, they are not known yet, so the next look decides.
void look_at_copies() {
  if (none_is(Copy::State::under_way) || looking.exchange(true)) return;
  alloc::Reclaim& reclaim = shared().reclaim;
  const alloc::Ticket end = reclaim.close() + 1;
  if (none_is(Copy::State::begins)) {
    ContextSet workers;
    for (Copy& copy : copies) {
      if (copy.is(Copy::State::under_way)) look_at(copy, workers);
    }
    workers.for_each([&](uint32_t worker) { reclaim.copies_done(worker, done_by(worker, end)); });
  }
  looking.store(false);
}

void reset_copy_ends_after_fork() { looking.store(false); }

}  // namespace cistern::shim
