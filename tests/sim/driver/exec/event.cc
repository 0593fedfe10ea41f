// SPDX-License-Identifier: Apache-2.0
#include "exec/event.h"

#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/handles.h"
#include "exec/capture.h"
#include "exec/context.h"
#include "exec/engine.h"
#include "watch/oracle.h"

namespace simcuda {
namespace {

HandleTable<CUevent, Event>& events() {
  static auto& all = *new HandleTable<CUevent, Event>;
  return all;
}

CUevent insert(Context& context, unsigned flags, std::shared_ptr<SharedEvent> shared) {
  return events().insert(std::make_shared<Event>(
      Event{context, flags, false, false, {}, nullptr, {}, std::move(shared)}));
}

// The work of a record, also in the eyes of other processes.
Work record_of(Call call, const EventRef& event) {
  Work work{.call = call, .of_pool = !event->of_program};
  if (event->shared != nullptr) {
    work.run = [shared = event->shared, number = event->shared->begin_record()] {
      shared->reach(number);
    };
  }
  return work;
}

// Whether it was ever recorded, here or elsewhere. With the lock.
bool was_recorded(const Event& event) {
  return event.recorded || (event.shared != nullptr && event.shared->last_record() != 0);
}

bool others_have_passed(const Event& event) {
  return event.shared == nullptr || event.shared->has_reached(event.shared->last_record());
}

}  // namespace

EventRef find_event(CUevent handle) { return events().find(handle); }

CUresult create_event(Context& context, unsigned flags, CUevent* out) {
  std::shared_ptr<SharedEvent> shared;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    shared = SharedEvent::make();
    if (shared == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *out = insert(context, flags, std::move(shared));
  return CUDA_SUCCESS;
}

CUresult get_event_handle(const EventRef& event, CUipcEventHandle* handle) {
  const bool had = event->shared != nullptr && event->shared->get_handle(handle);
  return had ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult open_event_handle(Context& context, const CUipcEventHandle& handle, CUevent* out) {
  std::shared_ptr<SharedEvent> shared;
  const CUresult code = SharedEvent::open(handle, &shared);
  if (code != CUDA_SUCCESS) return code;
  *out = insert(context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, std::move(shared));
  return CUDA_SUCCESS;
}

CUresult destroy_event(CUevent handle) {
  return events().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult record_event(Call call, const EventRef& event, const StreamRef& stream, unsigned flags) {
  if (flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) return CUDA_ERROR_INVALID_VALUE;
  if (&event->context != &stream->context) return CUDA_ERROR_INVALID_HANDLE;
  {
    const std::lock_guard lock(exec_mutex());
    if (stream->capture) return record_captured_event(*stream, *event);
  }
  MarkerRef marker;
  const CUresult code = submit(stream, record_of(call, event), Wait::kNo, &marker);
  if (code != CUDA_SUCCESS) return code;
  const std::lock_guard lock(exec_mutex());
  event->recorded = true;
  event->capture.reset();
  event->order = {};
  event->order.add(marker);
  return CUDA_SUCCESS;
}

CUresult wait_event(Call call, const StreamRef& stream, const EventRef& event) {
  Work wait{.call = call, .of_pool = !event->of_program};
  {
    const std::lock_guard lock(exec_mutex());
    if (event->capture) return join_capture(*stream, *event);
    if (stream->capture) {
      // Work outside the capture cannot be waited for inside it.
      if (was_recorded(*event)) return isolation_broken(*stream->capture);
      return CUDA_SUCCESS;
    }
    if (!was_recorded(*event)) return CUDA_SUCCESS;
    wait.after = event->order;
    if (judging() && wait.of_pool) {
      judge_stream_wait(wait.after, promised_to(*stream));
      wait.after.promised = {};
    }
    if (event->shared != nullptr) {
      wait.run = [shared = event->shared, number = event->shared->last_record()] {
        shared->await(number);
      };
    }
  }
  return submit(stream, std::move(wait));
}

CUresult record_context(Context& context, const EventRef& event) {
  if (&event->context != &context) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(exec_mutex());
  if (const CUresult code = refuse_context_call(context); code != CUDA_SUCCESS) return code;
  event->recorded = true;
  event->capture.reset();
  event->order = context.unfinished();
  event->order.reached_ns = now_ns();
  return CUDA_SUCCESS;
}

CUresult context_waits(Context& context, const EventRef& event) {
  const std::lock_guard lock(exec_mutex());
  if (event->capture) return invalidate(*event->capture);
  if (const CUresult code = refuse_context_call(context); code != CUDA_SUCCESS) return code;
  context.barrier.prune();
  context.barrier.add(event->order);
  return CUDA_SUCCESS;
}

CUresult query_event(const EventRef& event) {
  host_asks();
  const std::lock_guard lock(exec_mutex());
  if (event->capture) return captured_event_used(*event->capture);
  const bool passed = has_passed(event->order) && others_have_passed(*event);
  if (judging()) judge_query(*event, passed);
  return passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult synchronize_event(const EventRef& event) {
  Order order;
  {
    const std::lock_guard lock(exec_mutex());
    if (event->capture) return captured_event_used(*event->capture);
    order = event->order;
  }
  wait_for(std::move(order));
  if (event->shared != nullptr) event->shared->await(event->shared->last_record());
  return CUDA_SUCCESS;
}

CUresult elapsed_ms(const EventRef& start, const EventRef& end, float* milliseconds) {
  const std::lock_guard lock(exec_mutex());
  for (const EventRef& event : {start, end}) {
    if (event->capture) return captured_event_used(*event->capture);
    if (!event->recorded || (event->flags & CU_EVENT_DISABLE_TIMING)) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!has_passed(event->order)) return CUDA_ERROR_NOT_READY;
    if (judging()) thread_learns(event->order.promised);
  }
  *milliseconds = static_cast<float>(end->order.reached_ns - start->order.reached_ns) / 1e6F;
  return CUDA_SUCCESS;
}

}  // namespace simcuda
