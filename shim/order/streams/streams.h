// SPDX-License-Identifier: Apache-2.0
// What the hooks tell of the program's streams, and whose they are. They are only followed where
// the driver cannot record an event for a whole context (stream_marks.h says what for). Any thread.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/streams/stream_registry.h"

namespace cistern::shim {

bool streams_followed();

// The program created a stream in its current context.
void stream_appeared(CUstream stream, unsigned flags);

// The context of a stream, as far as the driver names it; else the calling thread's.
CUcontext context_of_stream(CUstream stream);

// The program uses a stream in a way that would not work if there were none.
void stream_seen(CUstream stream);

// Around the driver's call that destroys a stream.
class StreamLeaving {
 public:
  explicit StreamLeaving(CUstream stream);
  void done(bool destroyed);

 private:
  StreamRegistry::Entry entry_{};
  bool listed_ = false;
};

}  // namespace cistern::shim
