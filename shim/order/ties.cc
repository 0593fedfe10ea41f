// SPDX-License-Identifier: Apache-2.0
#include "shim/order/ties.h"

#include <algorithm>
#include <atomic>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/process/background.h"

namespace cistern::shim {
namespace {

// The contexts that a worker reaches by peer access: reached[worker] has the bit of the owner.
constinit std::atomic<uint64_t> reached[alloc::Reclaim::kMaxContexts][ContextSet::kWords] = {};
// The devices on which a worker reaches every context.
constinit std::atomic<uint64_t> devices_reached[alloc::Reclaim::kMaxContexts] = {};
static_assert(kMaxDevices <= 64);
// The workers that reach every context.
constinit std::atomic<uint64_t> reach_all[ContextSet::kWords] = {};
// By owner: the devices of unknown contexts that reach it. No hook sees when the last of these
// contexts is gone.
constinit std::atomic<uint64_t> strangers[alloc::Reclaim::kMaxContexts] = {};
// Held while any of them changes, so that a context that ends meanwhile leaves no bit behind for
// the next context of its number. Locked after the contexts' own mutex, if both are.
constinit alloc::Mutex reach_mutex;

constinit std::atomic<bool> any_peers{false};

constexpr uint64_t bit(uint32_t number) { return uint64_t{1} << number % 64; }

// A context that was found before the lock was taken, and may have ended by then.
class Found {
 public:
  explicit Found(CUcontext handle) : context_(working_context(handle)) {
    if (context_ != nullptr) handle_ = context_->handle.load();
  }
  bool lives() const { return handle_ != nullptr && context_->handle.load() == handle_; }
  const Context* operator->() const { return context_; }

 private:
  const Context* context_;
  CUcontext handle_ = nullptr;
};

bool reaches_all(uint32_t worker) { return (reach_all[worker / 64].load() & bit(worker)) != 0; }

// Caller holds the lock. To be called after each change: notes whether there is any access now.
// Frees have to wait for more, or less, from now on (pooled/free_wait.h).
void look_for_peers() {
  bool any = false;
  for (const std::atomic<uint64_t>& word : reach_all) any |= word.load() != 0;
  for (uint32_t i = 0; i < alloc::Reclaim::kMaxContexts; ++i) {
    any |= devices_reached[i].load() != 0 || strangers[i].load() != 0;
    for (const std::atomic<uint64_t>& word : reached[i]) any |= word.load() != 0;
  }
  if (any_peers.exchange(any) || any) end_seen_empty();
}

// Caller holds the lock. tie() leaves out workers whose bit is set, so reclamation knows of the
// access whenever the bit is set.
void set_reach(uint32_t owner, uint32_t worker, bool on) {
  if (owner == worker) return;
  std::atomic<uint64_t>& word = reached[worker][owner / 64];
  if (!on) word.fetch_and(~bit(owner));
  if (!reaches_all(worker)) shared().reclaim.reaches(owner, worker, on);
  if (on) word.fetch_or(bit(owner));
}

bool is_reached(uint32_t owner, uint32_t worker) {
  return (reached[worker][owner / 64].load(std::memory_order_relaxed) & bit(owner)) != 0;
}

bool reaches_device(uint32_t worker, CUdevice device) {
  return (devices_reached[worker].load() & bit(static_cast<uint32_t>(device))) != 0;
}

// Caller holds the lock. A context that appears meanwhile is either visited here, or finds the bit
// (ties_of_new_context).
void reach_device(uint32_t worker, CUdevice device) {
  devices_reached[worker].fetch_or(bit(static_cast<uint32_t>(device)));
  for_each_context([&](Context& owner) {
    if (owner.device == device) set_reach(owner.number, worker, /*on=*/true);
  });
}

}  // namespace

bool any_peer_access() { return any_peers.load(); }

ContextSet living_contexts() {
  ContextSet living;
  for_each_context([&](Context& context) { living.add(context.number); });
  if (crowd_lives()) living.add(kCrowd);
  return living;
}

void tie(const ContextSet& owners, const ContextSet& workers) {
  alloc::Reclaim& reclaim = shared().reclaim;
  ContextSet all = owners;
  all.add(workers);
  const ContextSet named = all;
  named.for_each([&](uint32_t worker) {
    for (uint32_t i = 0; i < ContextSet::kWords; ++i) {
      uint64_t word = reached[worker][i].load(std::memory_order_relaxed);
      for (; word != 0; word &= word - 1) {
        all.add(i * 64 + static_cast<uint32_t>(std::countr_zero(word)));
      }
    }
  });
  all.for_each([&](uint32_t owner) {
    workers.for_each([&](uint32_t worker) {
      const bool tied = is_reached(owner, worker) || reaches_all(worker);
      if (owner != worker && !tied) reclaim.touched(owner, worker);
    });
  });
}

uint64_t devices_reaching(uint32_t owner) {
  uint64_t devices = strangers[owner].load();
  for (int worker = 0, n = context_slots(); worker < n; ++worker) {
    const ContextSlot* slot = context_slot(worker);
    if (slot == nullptr || (reached[worker][owner / 64].load() & bit(owner)) == 0) continue;
    devices |= bit(static_cast<uint32_t>(slot->device.load()));
  }
  return devices;
}

void peer_access_changed(CUcontext owner, bool on) {
  CUcontext current = current_handle();
  const Found worker(current), reached_one(owner);
  CUdevice device = kNoDevice;
  driver().cuCtxGetDevice(&device);
  const alloc::LockGuard guard(reach_mutex);
  if (!reached_one.lives()) return;
  if (!worker.lives()) {
    const bool known = on && device >= 0 && device < kMaxDevices;
    if (known) strangers[reached_one->number].fetch_or(bit(static_cast<uint32_t>(device)));
    // Another context of the crowd may have access as well. So the crowd's access is not taken away
    // before its last context is gone.
    if (on && in_crowd(current)) set_reach(reached_one->number, kCrowd, /*on=*/true);
    return look_for_peers();
  }
  const bool opened = reaches_device(worker->number, reached_one->device);
  if (on || !opened) set_reach(reached_one->number, worker->number, on);
  look_for_peers();
}

void peer_device_opened(CUdeviceptr address) {
  CUcontext current = current_handle();
  const Found worker(current);
  CUdevice own = kNoDevice;
  driver().cuCtxGetDevice(&own);
  int device = kNoDevice;
  const auto ask = driver().cuPointerGetAttribute;
  const bool known = ask != nullptr &&
                     ask(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS &&
                     device >= 0 && device < kMaxDevices;
  const alloc::LockGuard guard(reach_mutex);
  uint32_t number = kCrowd;
  if (worker.lives()) {
    number = worker->number;
  } else if (!in_crowd(current)) {
    return;
  }
  for (CUdevice each = 0; each < kMaxDevices; ++each) {
    // Within its own device the context needs no peer access, and gets none.
    if (each != own && (!known || each == device)) reach_device(number, each);
  }
  look_for_peers();
}

// The numbers of reclamation belong to contexts and to the pools of pinned memory: all are owners.
// A context that appears meanwhile finds the bit.
void reaches_everything(uint32_t worker) {
  const alloc::LockGuard guard(reach_mutex);
  reach_all[worker / 64].fetch_or(bit(worker));
  const auto end = static_cast<uint32_t>(context_slots());
  for (uint32_t owner = 0; owner < end; ++owner) {
    if (owner != worker) shared().reclaim.reached_since_ever(owner, worker);
  }
  look_for_peers();
}

void ties_of_new_context(const Context& context) {
  const alloc::LockGuard guard(reach_mutex);
  const auto note = [&](uint32_t worker) {
    if (reaches_device(worker, context.device)) set_reach(context.number, worker, /*on=*/true);
    const bool other = worker != context.number;
    if (other && reaches_all(worker)) shared().reclaim.reached_since_ever(context.number, worker);
  };
  for_each_context([&](const Context& worker) { note(worker.number); });
  note(kCrowd);
}

void ties_of_crowd_gone() {
  const alloc::LockGuard guard(reach_mutex);
  devices_reached[kCrowd].store(0);
  reach_all[kCrowd / 64].fetch_and(~bit(kCrowd));
  for (std::atomic<uint64_t>& word : reached[kCrowd]) word.store(0);
  look_for_peers();
}

void ties_of_context_gone(const Context& context) {
  const alloc::LockGuard guard(reach_mutex);
  const uint32_t gone = context.number;
  devices_reached[gone].store(0);
  strangers[gone].store(0);
  reach_all[gone / 64].fetch_and(~bit(gone));
  for (std::atomic<uint64_t>& word : reached[gone]) word.store(0);
  for (auto& worker : reached) worker[gone / 64].fetch_and(~bit(gone));
  look_for_peers();
}

void reset_ties_after_fork() { reach_mutex.reset(); }

// --- the ends of copies ---

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
