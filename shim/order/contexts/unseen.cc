// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context_life.h"

#include "shim/entry/driver.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/shared.h"
#include "shim/order/streams/events.h"
#include "shim/order/streams/stream_registry.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

bool is_known(CUcontext handle) {
  return context_named(handle) != nullptr || in_crowd(handle) || is_green(handle);
}

// A green context works on a primary one. The program need not have asked for the green one's
// handle.
bool is_green_stream(CUstream stream) {
  CUgreenCtx green = nullptr;
  const auto ask = driver().cuStreamGetGreenCtx;
  return ask != nullptr && ask(stream, &green) == CUDA_SUCCESS && green != nullptr;
}

}  // namespace

// The context may be gone, but still current to this thread: then the driver returns an error. If
// another thread is inside the call that creates the context, the call is counted as appearing, and
// the context is known before that count drops. The generation shows whether the context has ended
// again since.
void unknown_context(CUcontext handle, uint32_t generation) {
  CUdevice device;
  if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return;
  if (contexts_appearing() || contexts_ending.load() != 0) return;
  if (is_known(handle) || context_generation() != generation) return;
  if (context_noticed(handle, device)) noticed(Unseen::kContext);
}

bool about_to_be_retained(CUcontext handle) {
  CUdevice device;
  unsigned int flags;
  int active = 1;
  if (!runtime_has_tables() || is_known(handle)) return false;
  if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return false;
  const CUresult asked = driver().cuDevicePrimaryCtxGetState(device, &flags, &active);
  return asked == CUDA_SUCCESS && active == 0 && await_primary(device, handle);
}

void notice_context(CUcontext handle) {
  if (handle == nullptr || !active()) return;
  const uint32_t generation = context_generation();
  if (is_known(handle)) return;
  const ContextScope scope(handle);
  if (scope) unknown_context(handle, generation);
}

void notice_context_of(CUstream stream) {
  CUcontext context = nullptr;
  const auto ask = driver().cuStreamGetCtx;
  if (stands_for_several(stream) || ask == nullptr || ask(stream, &context) != CUDA_SUCCESS) return;
  if (context != nullptr && !is_known(context) && !is_green_stream(stream)) notice_context(context);
}

}  // namespace cistern::shim
