// SPDX-License-Identifier: Apache-2.0
#include "shim/order/streams/streams.h"

#include "shim/entry/driver.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

// True for the handles of the default streams, which exist once per context or per thread.
bool stands_for_several(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CudaSource* source_of(CUcontext handle) {
  Context* context = handle == nullptr ? nullptr : context_named(handle);
  return context == nullptr ? nullptr : &context->source;
}

}  // namespace

bool streams_followed() { return active() && driver().cuCtxRecordEvent == nullptr; }

void stream_appeared(CUstream stream, unsigned flags) {
  if (!streams_followed()) return;
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS) streams().give_up();
  CUcontext before = streams().add({stream, context, (flags & CU_STREAM_NON_BLOCKING) == 0});
  // The stream that had the handle before may have ended with its context, whose hook has not said
  // so yet. Otherwise it was destroyed out of sight.
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

// The stream is taken out of the registry before it is destroyed, since the driver may use its
// handle again at once; and between two marks, since a mark under way may be about to use the
// handle. In the same step its last event is recorded. Where that cannot be done, for example
// during a capture, its work is a loss.
StreamLeaving::StreamLeaving(CUstream stream) {
  if (!streams_followed()) return;
  CUcontext handle = streams().context_of(stream);
  Context* context = handle == nullptr ? nullptr : context_named(handle);
  const auto leave = [&] {
    listed_ = streams().take_out(stream, &entry_);
    if (!listed_) return;
    if (context == nullptr || !context->source.stream_leaves(stream)) streams().lose();
  };
  if (context == nullptr) {
    leave();
  } else {
    shared().reclaim.between_calls(context->number, leave);
  }
}

// If the driver refused, the stream is listed again. Work that another thread gave it meanwhile is
// not covered if the driver destroys it: no correct program does that.
void StreamLeaving::done(bool destroyed) {
  if (!streams_followed()) return;
  if (listed_ && !destroyed) streams().add(entry_);
  if (!listed_ && destroyed && !streams().unlisted_gone()) distrust("stream");
}

}  // namespace cistern::shim
