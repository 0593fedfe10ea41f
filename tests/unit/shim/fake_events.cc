// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/shim/fake_events.h"

#include "tests/unit/shim/fake_shim.h"

namespace cistern::test {
namespace {

constinit FakeEvents* the_events = nullptr;

CUresult create_event(CUevent* out, unsigned flags) {
  ++the_events->calls;
  if (flags != CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_VALUE;
  if (the_events->creations_left-- <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
  the_events->all.push_back({FakeEvents::State::passed, nullptr, fakes().current, nullptr});
  *out = reinterpret_cast<CUevent>(the_events->all.size());
  return CUDA_SUCCESS;
}

CUresult record_event(CUevent event, CUstream on) {
  ++the_events->calls;
  if (the_events->refused.count(on) != 0) return CUDA_ERROR_INVALID_HANDLE;
  the_events->recorded.push_back(on);
  the_events->of(event).state = FakeEvents::State::pending;
  the_events->of(event).stream = on;
  the_events->of(event).recorded_in = fakes().current;
  return CUDA_SUCCESS;
}

CUresult query_event(CUevent event) {
  ++the_events->calls;
  switch (the_events->of(event).state) {
    case FakeEvents::State::pending:
      return CUDA_ERROR_NOT_READY;
    case FakeEvents::State::passed:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

CUresult push(CUcontext pushed) {
  if (the_events->push_fails) return CUDA_ERROR_INVALID_CONTEXT;
  the_events->stack.push_back(fakes().current);
  fakes().current = pushed;
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* popped) {
  if (the_events->stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *popped = fakes().current;
  fakes().current = the_events->stack.back();
  the_events->stack.pop_back();
  return CUDA_SUCCESS;
}

}  // namespace

FakeEvents::FakeEvents() {
  reset_fakes();
  the_events = this;
  shim::Driver& driver = fakes().driver;
  driver.cuEventCreate = create_event;
  driver.cuEventRecord = record_event;
  driver.cuEventQuery = query_event;
  driver.cuCtxPushCurrent_v2 = push;
  driver.cuCtxPopCurrent_v2 = pop;
}

}  // namespace cistern::test
