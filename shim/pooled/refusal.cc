// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/refusal.h"

#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/suspicion.h"

namespace cistern::shim {
namespace {

// A thread with a pooled context is not refused. Otherwise the driver is asked a question about
// memory, which has no effect.
CUresult refusal_of_thread() {
  if (current_context() != nullptr) [[likely]]
    return CUDA_SUCCESS;
  size_t free, total;
  return noted(driver().cuMemGetInfo_v2(&free, &total));
}

}  // namespace

CUresult refusal(Context& owner) {
  const CUresult result = refusal_of_thread();
  return result == CUDA_SUCCESS ? condition_of(owner) : result;
}

CUresult refusal_here() {
  Context* context = current_context();
  return context != nullptr ? condition_of(*context) : refusal_of_thread();
}

// The query of an event that was never recorded is such an unsafe call, and has no other effect.
// The driver refuses it, and invalidates the capture, where it would do so for the free of memory
// that no pool has.
CUresult ask_for_unsafe_call() {
  const Driver& d = driver();
  CUevent event;
  if (d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return CUDA_SUCCESS;
  const CUresult result = d.cuEventQuery(event);
  d.cuEventDestroy_v2(event);
  return result;
}

CUresult no_room() {
  const CUresult result = no_room_for_units();
  if (result != CUDA_ERROR_OUT_OF_MEMORY || !capture_gate().capturing()) return result;
  const CUresult unsafe = ask_for_unsafe_call();
  return unsafe != CUDA_SUCCESS ? unsafe : result;
}

CUresult no_room_for_units() {
  Context* context = current_context();
  const CUresult died = context != nullptr ? condition_of(*context) : CUDA_SUCCESS;
  return died != CUDA_SUCCESS ? died : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace cistern::shim
