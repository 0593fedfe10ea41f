// SPDX-License-Identifier: Apache-2.0
// Records the program's streams as the hooks report them, and says which context a stream belongs
// to. Streams are only followed where the driver cannot record an event for a whole context
// (stream_marks.h says what for). Any thread.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/streams/stream_registry.h"

namespace cistern::shim {

bool streams_followed();

// The program created a stream in its current context.
void stream_appeared(CUstream stream, unsigned flags);

// The context of a stream, as far as the driver names it; else the calling thread's.
CUcontext context_of_stream(CUstream stream);

// True for the handles of the default streams, which exist once per context or per thread.
inline bool stands_for_several(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

// A driver call of the program on this stream succeeded, so there is such a stream. If no hook saw
// it made, there may be more in its context, whose work is in no mark: from then on only the
// program's synchronisations of that context tell what is done.
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
