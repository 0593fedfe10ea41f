// SPDX-License-Identifier: Apache-2.0
#include "shim/order/streams/events.h"

#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/process/background.h"

namespace cistern::shim {

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

}  // namespace cistern::shim
