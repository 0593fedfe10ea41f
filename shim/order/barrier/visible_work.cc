// SPDX-License-Identifier: Apache-2.0
#include "shim/order/barrier/visible_work.h"

#include <algorithm>
#include <iterator>

#include "allocator/base/mutex.h"
#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/streams/events.h"
#include "shim/order/streams/stream_registry.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

// The newest visible work of a stream. The event belongs to the context, and serves any of its
// streams.
struct Followed {
  CUcontext context;  // nullptr: not used yet
  CUstream stream;
  CUevent event;
  bool pending;  // recorded, and not yet seen to have passed
};
constexpr int kMost = 16;
constinit Followed list[kMost] = {};
constinit alloc::Mutex list_mutex;

constexpr uint64_t kPatienceNs = 100'000'000;  // another thread may be held up in the driver
const auto kNoStream = reinterpret_cast<CUstream>(~uintptr_t{0});

// The stream's entry, else an idle entry of the context, else a new one with an event of the
// context.
Followed* find(CUcontext context, CUstream stream) {
  Followed *idle = nullptr, *unused = nullptr;
  for (Followed& each : list) {
    if (each.context == context && each.stream == stream) return &each;
    if (each.context == context && !each.pending) idle = &each;
    if (each.context == nullptr) unused = &each;
  }
  if (idle != nullptr || unused == nullptr) return idle;
  if (!create_event(&unused->event)) return nullptr;
  *unused = {context, kNoStream, unused->event, false};
  return unused;
}

}  // namespace

// A context without a pool, such as a green one, is not followed.
bool follow_visible_work(CUstream stream) {
  const GatePass pass;  // it also keeps the event out of a capture
  const Context* context = current_context();
  if (!pass || context == nullptr || !list_mutex.lock_within(kPatienceNs)) return false;
  Followed* followed = find(context->handle.load(), stream);
  CUresult recorded = CUDA_ERROR_OUT_OF_MEMORY;
  if (followed != nullptr) {
    followed->stream = stream;
    recorded = noted(driver().cuEventRecord(followed->event, stream));
    followed->pending = followed->pending || recorded == CUDA_SUCCESS;
  }
  list_mutex.unlock();
  return recorded == CUDA_SUCCESS;
}

bool any_visible_work(const Context& context) {
  CUcontext handle = context.handle.load();
  const alloc::LockGuard guard(list_mutex);
  return std::any_of(std::begin(list), std::end(list),
                     [=](const Followed& each) { return each.context == handle && each.pending; });
}

namespace {

// Whether other contexts may have visible work, even work that no event follows, or work of other
// threads. Another thread's work counts because it may finish only with the help of that thread. If
// the calling thread left a debt behind such work and ended, that thread would wait for the debt
// without a limit (work.h). In a context that was never seen empty, the work's thread is unknown.
bool others_may_show(CUcontext own) {
  const ThreadId me = this_thread_id();
  bool any = false;
  for_each_context([&](const Context& each) {
    any |= each.handle.load() != own && !each.unfinished.only_of(me);
  });
  return any;
}

}  // namespace

bool may_await_visible_work(CUstream stream) {
  const auto any_but_of = [](CUcontext own) {
    if (others_may_show(own)) return true;
    const alloc::LockGuard guard(list_mutex);
    return std::any_of(std::begin(list), std::end(list),
                       [=](const Followed& each) { return each.pending && each.context != own; });
  };
  if (!several_contexts() || !any_but_of(nullptr)) return false;
  CUcontext own = nullptr;
  const auto ask = driver().cuStreamGetCtx;
  if (stands_for_several(stream)) {
    own = current_handle();
  } else if (ask == nullptr || ask(stream, &own) != CUDA_SUCCESS) {
    return true;
  }
  return any_but_of(own);
}

// The context may end meanwhile, and its events with it, so each look is a Visit. Work that failed
// is over.
void await_visible_work(Context& context) {
  const NoCancel in_hand;
  const auto over = [&] {
    const LetByCaptures allowed;  // a capture may begin meanwhile
    const Visit visit(context);
    const ContextScope scope(visit.open() ? visit.handle() : nullptr);
    if (!visit.open() || !scope) return true;
    const alloc::LockGuard guard(list_mutex);
    bool any = false;
    for (Followed& each : list) {
      if (each.context != visit.handle() || !each.pending) continue;
      each.pending = state_of(each.event, visit.handle()) == alloc::MarkState::pending;
      any |= each.pending;
    }
    return !any;
  };
  alloc::os::wait_until(over, UINT64_MAX);
}

// The stream's work must still be waited for, and a new stream may get its handle.
void visible_work_leaves(CUstream stream) {
  const alloc::LockGuard guard(list_mutex);
  for (Followed& each : list) {
    if (each.stream == stream) each.stream = kNoStream;
  }
}

void visible_work_gone(CUcontext handle) {
  const alloc::LockGuard guard(list_mutex);
  for (Followed& each : list) {
    if (each.context == handle) each = {};
  }
}

void reset_visible_work_after_fork() {
  list_mutex.reset();
  std::fill(std::begin(list), std::end(list), Followed{});
}

}  // namespace cistern::shim
