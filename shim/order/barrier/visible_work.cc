// SPDX-License-Identifier: Apache-2.0
#include "shim/order/barrier/visible_work.h"

#include <algorithm>
#include <iterator>

#include "allocator/base/mutex.h"
#include "shim/entry/driver.h"
#include "shim/order/barrier/debts.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/streams/events.h"
#include "shim/order/suspicion.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

// The newest such work of a stream. The event is its context's, and serves any stream of it.
struct Followed {
  CUcontext context;  // nullptr: not used yet
  CUstream stream;
  CUevent event;
  bool pending;  // since it was last waited for
};
constexpr int kMost = 16;
constinit Followed list[kMost] = {};
constinit alloc::Mutex mutex;

// The stream's, else one that nobody waits for, else a new one; with an event of the context.
Followed* find(CUcontext context, CUstream stream) {
  Followed *idle = nullptr, *unused = nullptr;
  for (Followed& each : list) {
    if (each.context == context && each.stream == stream) return &each;
    if (each.context == context && !each.pending) idle = &each;
    if (each.context == nullptr) unused = &each;
  }
  if (idle != nullptr || unused == nullptr) return idle;
  if (!create_event(&unused->event)) return nullptr;
  *unused = {context, nullptr, unused->event, false};
  return unused;
}

}  // namespace

bool follow_visible_work(CUstream stream) {
  const GatePass pass;  // and no event ends up in a capture
  CUcontext context = current_handle();
  if (!pass || context == nullptr) return false;
  const alloc::LockGuard guard(mutex);
  Followed* followed = find(context, stream);
  if (followed == nullptr) return false;
  followed->stream = stream;
  const CUresult recorded = noted(driver().cuEventRecord(followed->event, stream));
  followed->pending = followed->pending || recorded == CUDA_SUCCESS;
  return recorded == CUDA_SUCCESS;
}

bool any_visible_work(const Context& context) {
  CUcontext handle = context.handle.load();
  const alloc::LockGuard guard(mutex);
  return std::any_of(std::begin(list), std::end(list),
                     [=](const Followed& each) { return each.context == handle && each.pending; });
}

// No lock is held meanwhile: only the thread whose work it is records anew.
bool await_visible_work(const Context& context) {
  const NoCancel in_hand;
  CUcontext handle = context.handle.load();
  for (Followed& each : list) {
    CUevent event = nullptr;
    {
      const alloc::LockGuard guard(mutex);
      if (each.context == handle && each.pending) event = each.event;
    }
    if (event == nullptr) continue;
    if (noted(driver().cuEventSynchronize(event), handle) != CUDA_SUCCESS) return false;
    const alloc::LockGuard guard(mutex);
    if (each.event == event) each.pending = false;
  }
  return true;
}

void visible_work_gone(CUcontext handle) {
  const alloc::LockGuard guard(mutex);
  for (Followed& each : list) {
    if (each.context == handle) each = {};
  }
}

void reset_visible_work_after_fork() { mutex.reset(); }

}  // namespace cistern::shim
