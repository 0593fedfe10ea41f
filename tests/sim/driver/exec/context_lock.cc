// SPDX-License-Identifier: Apache-2.0
#include "exec/context_lock.h"

#include <mutex>

#include "base/settings.h"
#include "exec/context.h"
#include "exec/current.h"
#include "exec/engine.h"

namespace simcuda {
namespace {

// cuMemFreeAsync and cuLaunchHostFunc were not measured; they hand over work like the others.
bool needs_lock(Call call) {
  switch (call) {
    case Call::cuMemAlloc_v2:
    case Call::cuMemAllocPitch_v2:
    case Call::cuMemAllocHost_v2:
    case Call::cuMemHostAlloc:
    case Call::cuStreamCreate:
    case Call::cuStreamCreateWithPriority:
    case Call::cuCtxRecordEvent:
      return true;
    default:
      return (info(call).traits & kOrdered) != 0;
  }
}

void await_turn(const Context& context, std::unique_lock<std::mutex>& lock) {
  const uint64_t self = thread_number();
  progress().wait(lock, [&] { return context.locked_by == 0 || context.locked_by == self; });
}

}  // namespace

FreeLock::FreeLock(Context& context) : context_(settings().free_locks ? &context : nullptr) {
  if (context_ == nullptr) return;
  std::unique_lock lock(exec_mutex());
  await_turn(context, lock);
  context.locked_by = thread_number();
}

FreeLock::~FreeLock() {
  if (context_ == nullptr) return;
  const std::lock_guard lock(exec_mutex());
  context_->locked_by = 0;
  progress().notify_all();
}

void await_free_lock(Call call) {
  const Context* context = needs_lock(call) ? current_context() : nullptr;
  if (context == nullptr) return;
  std::unique_lock lock(exec_mutex());
  await_turn(*context, lock);
}

}  // namespace simcuda
