// SPDX-License-Identifier: Apache-2.0
//
// Events: a set of markers, taken from a stream or a whole context. Fields are guarded by
// exec_mutex().
#pragma once

#include <memory>
#include <vector>

#include "base/cuda.h"
#include "exec/shared_event.h"
#include "exec/stream.h"
#include "exec/work.h"

namespace simcuda {

struct Event {
  Context& context;
  const unsigned flags;
  bool recorded = false;
  bool of_program = false;  // said simcuda/order.h
  Order order;              // what it stands for
  // Set while the last record was inside a capture.
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> nodes;
  std::shared_ptr<SharedEvent> shared;  // of an event for several processes
};

using EventRef = std::shared_ptr<Event>;

EventRef find_event(CUevent handle);
CUresult create_event(Context& context, unsigned flags, CUevent* out);
// Of an event with CU_EVENT_INTERPROCESS that was made here; and such an event of another process.
CUresult get_event_handle(const EventRef& event, CUipcEventHandle* handle);
CUresult open_event_handle(Context& context, const CUipcEventHandle& handle, CUevent* out);
CUresult destroy_event(CUevent handle);

CUresult record_event(Call call, const EventRef& event, const StreamRef& stream, unsigned flags);
CUresult wait_event(Call call, const StreamRef& stream, const EventRef& event);

// The same for all streams of a context.
CUresult record_context(Context& context, const EventRef& event);
CUresult context_waits(Context& context, const EventRef& event);

CUresult query_event(const EventRef& event);
CUresult synchronize_event(const EventRef& event);
CUresult elapsed_ms(const EventRef& start, const EventRef& end, float* milliseconds);

}  // namespace simcuda
