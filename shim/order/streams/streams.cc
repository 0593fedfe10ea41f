// SPDX-License-Identifier: Apache-2.0
#include "shim/order/streams/stream_marks.h"

#include "shim/entry/driver.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

// A stream of this context (nullptr: of any context) began or ended, and no hook saw it.
void stream_unseen_in(const Context* context) {
  for_each_context([=](Context& each) {
    if (context == nullptr || context == &each) each.source.stream_unseen();
  });
  noticed(Unseen::kStream);
}

Context* listed_context(CUcontext handle) {
  return handle == nullptr ? nullptr : context_named(handle);
}

}  // namespace

bool streams_followed() { return active() && driver().cuCtxRecordEvent == nullptr; }

void stream_appeared(CUstream stream, unsigned flags) {
  if (!streams_followed()) return;
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS) streams().give_up();
  CUcontext before = streams().add({stream, context, (flags & CU_STREAM_NON_BLOCKING) == 0});
  // The stream that had the handle before may have ended with its context, whose hook has not noted
  // that yet. Otherwise no hook saw its end.
  const Context* owner = listed_context(before);
  if (owner != nullptr && !owner->source.closing()) stream_unseen_in(owner);
}

CUcontext context_of_stream(CUstream stream) {
  CUcontext context = nullptr;
  const auto ask = driver().cuStreamGetCtx;
  const bool known =
      !stands_for_several(stream) && ask != nullptr && ask(stream, &context) == CUDA_SUCCESS;
  return known && context != nullptr ? context : current_handle();
}

void stream_seen(CUstream stream) {
  if (!streams_followed() || stands_for_several(stream) || streams().knows(stream)) return;
  stream_unseen_in(listed_context(context_of_stream(stream)));
}

// Takes the stream out of the registry before it is destroyed, since the driver may reuse its
// handle at once. This happens between two marks, since a mark in progress may be about to use the
// handle. The stream's last event is recorded in the same step. If that is not possible, for
// example during a capture, its work counts as a loss.
StreamLeaving::StreamLeaving(CUstream stream) {
  if (!streams_followed()) return;
  CUcontext handle = streams().context_of(stream);
  Context* context = listed_context(handle);
  const auto leave = [&] {
    listed_ = streams().take_out(stream, &entry_);
    if (!listed_) return;
    // A careful context has no marks that could miss the stream.
    if (context != nullptr && context->careful.load()) return;
    if (context == nullptr || !context->source.stream_leaves(stream)) streams().lose();
  };
  if (context == nullptr) {
    leave();
  } else {
    shared().reclaim.between_calls(context->number, leave);
  }
}

// If the driver refused, the stream is listed again. If the driver destroyed the stream, work that
// another thread gave it meanwhile is not covered: no correct program does that.
void StreamLeaving::done(bool destroyed) {
  if (!streams_followed()) return;
  if (listed_ && !destroyed) streams().add(entry_);
  if (!listed_ && destroyed && !streams().unlisted_gone()) stream_unseen_in(nullptr);
}

}  // namespace cistern::shim
