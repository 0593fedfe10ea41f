// SPDX-License-Identifier: Apache-2.0
#include "shim/order/streams/streams.h"

#include "shim/entry/driver.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

// A default stream exists once per context, or per thread.
bool stands_for_several(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CudaSource* source_of(CUcontext handle) {
  CudaSource* source = nullptr;
  for_each_context([&](Context& context) {
    if (context.handle.load(std::memory_order_acquire) == handle) source = &context.source;
  });
  return source;
}

}  // namespace

bool streams_followed() { return active() && driver().cuCtxRecordEvent == nullptr; }

void stream_appeared(CUstream stream, unsigned flags) {
  if (!streams_followed()) return;
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS) streams().give_up();
  CUcontext before = streams().add({stream, context, (flags & CU_STREAM_NON_BLOCKING) == 0});
  // Streams end with their context; its hook may not have come to say so yet.
  const CudaSource* source = before == nullptr ? nullptr : source_of(before);
  if (source != nullptr && !source->closing()) distrust("stream");
}

CUcontext context_of_stream(CUstream stream) {
  CUcontext context = nullptr;
  const auto ask = driver().cuStreamGetCtx;
  const bool known =
      !stands_for_several(stream) && ask != nullptr && ask(stream, &context) == CUDA_SUCCESS;
  return known && context != nullptr ? context : current_handle();
}

void stream_seen(CUstream stream) {
  if (streams_followed() && !stands_for_several(stream) && !streams().knows(stream))
    distrust("stream");
}

// The driver may use the handle again as soon as it has destroyed the stream, and a mark under way
// may be about to use it: so it is taken out before, between two marks, and its work gets its last
// event. A capture that is under way forbids that event.
StreamLeaving::StreamLeaving(CUstream stream) {
  if (!streams_followed()) return;
  shared().reclaim.between_calls([&] {
    listed_ = streams().take_out(stream, &entry_);
    if (!listed_) return;
    CudaSource* source = source_of(entry_.context);
    if (source == nullptr || !source->stream_leaves(stream)) streams().lose();
  });
}

// Work given to a stream while it is being destroyed is nobody's intention; after a refusal the
// stream is as before.
void StreamLeaving::done(bool destroyed) {
  if (!streams_followed()) return;
  if (listed_ && !destroyed) streams().add(entry_);
  if (!listed_ && destroyed && !streams().unlisted_gone()) distrust("stream");
}

}  // namespace cistern::shim
