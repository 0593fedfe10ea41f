// SPDX-License-Identifier: Apache-2.0
// What the hooks tell of the program's streams, and which context a stream belongs to. Streams are
// only followed where the driver cannot record an event for a whole context (stream_marks.h says
// what for). Any thread.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/streams/stream_registry.h"

namespace cistern::shim {

bool streams_followed();

// The program created a stream in its current context.
void stream_appeared(CUstream stream, unsigned flags);

// The context of a stream, as far as the driver names it; else the calling thread's.
CUcontext context_of_stream(CUstream stream);

// A driver call of the program on this stream succeeded, so there is such a stream: if no hook saw
// its creation, nothing is taken for clean any more.
void stream_seen(CUstream stream);

// Put around the driver's call that destroys a stream.
class StreamLeaving {
 public:
  explicit StreamLeaving(CUstream stream);
  void done(bool destroyed);

 private:
  StreamRegistry::Entry entry_{};
  bool listed_ = false;
};

}  // namespace cistern::shim
