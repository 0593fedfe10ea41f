// SPDX-License-Identifier: Apache-2.0
#include "shim/order/streams.h"

#include "shim/entry/driver.h"
#include "shim/order/context.h"
#include "shim/process/process.h"

namespace cistern::shim {
namespace {

constinit StreamRegistry registry;

CudaSource* source_of(CUcontext handle) {
  CudaSource* source = nullptr;
  for_each_context([&](Context& context) {
    if (context.handle.load(std::memory_order_acquire) == handle) source = &context.source;
  });
  return source;
}

}  // namespace

StreamRegistry& streams() { return registry; }

bool streams_followed() { return active() && driver().cuCtxRecordEvent == nullptr; }

void stream_appeared(CUstream stream, unsigned flags) {
  if (!streams_followed()) return;
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS) registry.give_up();
  CUcontext before = registry.add({stream, context, (flags & CU_STREAM_NON_BLOCKING) == 0});
  // Streams end with their context; its hook may not have come to say so yet.
  const CudaSource* source = before == nullptr ? nullptr : source_of(before);
  if (source != nullptr && !source->closing()) distrust("stream");
}

void stream_seen(CUstream stream) {
  const bool special =
      stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  if (streams_followed() && !special && !registry.knows(stream)) distrust("stream");
}

// The driver may use the handle again as soon as it has destroyed the stream, and a mark under way
// may be about to use it: so it is taken out before, between two marks, and its work gets its last
// event. A capture that is under way forbids that event.
StreamLeaving::StreamLeaving(CUstream stream) {
  if (!streams_followed()) return;
  shared().reclaim.between_calls([&] {
    listed_ = registry.take_out(stream, &entry_);
    if (!listed_) return;
    CudaSource* source = source_of(entry_.context);
    if (source == nullptr || !source->stream_leaves(stream)) registry.lose();
  });
}

// Work given to a stream while it is being destroyed is nobody's intention; after a refusal the
// stream is as before.
void StreamLeaving::done(bool destroyed) {
  if (!streams_followed()) return;
  if (listed_ && !destroyed) registry.add(entry_);
  if (!listed_ && destroyed && !registry.unlisted_gone()) distrust("stream");
}

}  // namespace cistern::shim
