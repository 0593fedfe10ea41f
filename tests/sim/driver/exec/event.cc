// SPDX-License-Identifier: Apache-2.0
#include "exec/event.h"

#include <algorithm>
#include <mutex>

#include "base/handles.h"
#include "exec/capture.h"
#include "exec/context.h"
#include "exec/engine.h"

namespace simcuda {
namespace {

HandleTable<CUevent, Event>& table() {
  static auto& all = *new HandleTable<CUevent, Event>;
  return all;
}

bool all_reached(const Markers& markers) {
  return std::all_of(markers.begin(), markers.end(), reached);
}

int64_t time_of(const Event& event) {
  int64_t latest = 0;
  for (const MarkerRef& marker : event.markers) latest = std::max(latest, marker->time_ns);
  return latest;
}

}  // namespace

EventRef find_event(CUevent handle) { return table().find(handle); }

CUevent create_event(Context& context, unsigned flags) {
  return table().insert(std::make_shared<Event>(Event{context, flags, false, {}, nullptr, {}}));
}

CUresult destroy_event(CUevent handle) {
  return table().remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult record_event(Call call, const EventRef& event, const StreamRef& stream, unsigned flags) {
  if (flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) return CUDA_ERROR_INVALID_VALUE;
  if (&event->context != &stream->context) return CUDA_ERROR_INVALID_HANDLE;
  {
    const std::lock_guard lock(exec_mutex());
    if (stream->capture) return record_captured_event(*stream, *event);
  }
  MarkerRef marker;
  const CUresult code = submit(stream, Work{.call = call}, Wait::kNo, &marker);
  if (code != CUDA_SUCCESS) return code;
  const std::lock_guard lock(exec_mutex());
  event->recorded = true;
  event->capture.reset();
  event->markers = {marker};
  return CUDA_SUCCESS;
}

CUresult wait_event(Call call, const StreamRef& stream, const EventRef& event) {
  Work wait{.call = call};
  {
    const std::lock_guard lock(exec_mutex());
    if (event->capture) return join_capture(*stream, *event);
    if (stream->capture) {
      // Work outside the capture cannot be waited for inside it.
      if (event->recorded) return isolation_broken(*stream->capture);
      return CUDA_SUCCESS;
    }
    wait.after = event->markers;
    if (prune(wait.after)) return CUDA_SUCCESS;
  }
  return submit(stream, std::move(wait));
}

CUresult record_context(Context& context, const EventRef& event) {
  if (&event->context != &context) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(exec_mutex());
  if (const CUresult code = refuse_context_call(context); code != CUDA_SUCCESS) return code;
  event->recorded = true;
  event->capture.reset();
  event->markers = context.unfinished();
  if (event->markers.empty()) {
    event->markers.push_back(std::make_shared<Marker>());
    reach_now(*event->markers.back());
  }
  return CUDA_SUCCESS;
}

CUresult context_waits(Context& context, const EventRef& event) {
  const std::lock_guard lock(exec_mutex());
  if (event->capture) return invalidate(*event->capture);
  if (const CUresult code = refuse_context_call(context); code != CUDA_SUCCESS) return code;
  prune(context.barrier);
  for (const MarkerRef& marker : event->markers) {
    if (!reached(marker)) context.barrier.push_back(marker);
  }
  return CUDA_SUCCESS;
}

CUresult query_event(const EventRef& event) {
  const std::lock_guard lock(exec_mutex());
  if (event->capture) return captured_event_used(*event->capture);
  return all_reached(event->markers) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult synchronize_event(const EventRef& event) {
  Markers markers;
  {
    const std::lock_guard lock(exec_mutex());
    if (event->capture) return captured_event_used(*event->capture);
    markers = event->markers;
  }
  wait_for(markers);
  return CUDA_SUCCESS;
}

CUresult elapsed_ms(const EventRef& start, const EventRef& end, float* milliseconds) {
  const std::lock_guard lock(exec_mutex());
  for (const EventRef& event : {start, end}) {
    if (event->capture) return captured_event_used(*event->capture);
    if (!event->recorded || (event->flags & CU_EVENT_DISABLE_TIMING)) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!all_reached(event->markers)) return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = static_cast<float>(time_of(*end) - time_of(*start)) / 1e6F;
  return CUDA_SUCCESS;
}

}  // namespace simcuda
