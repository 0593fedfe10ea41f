// SPDX-License-Identifier: Apache-2.0
// Streams: creation and destruction.
#include "shim/order/streams/stream_registry.h"

#include "shim/entry/faces.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/debts.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/captures/graphs.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

template <typename Function, typename... Arguments>
CUresult create_stream(Function* real, CUstream* out, unsigned flags, Arguments... arguments) {
  const CUresult result = ask_with_idle_memory(real, out, flags, arguments...);
  if (result == CUDA_SUCCESS) stream_appeared(*out, flags);
  return result;
}

// A capture ends with its stream. Whether there is one is asked before the driver destroys the
// stream: afterwards a new stream may have the same handle, and a capture of its own.
template <typename Function>
CUresult destroy_stream(Function* real, CUstream stream) {
  if (scratch_on()) scratch_end_stream(stream);
  const bool captures = active() && capture_gate().capturing(stream);
  if (any_debts()) forget_waits_of(stream);
  visible_work_leaves(stream);
  StreamLeaving leaving(stream);
  const CUresult result = ask(real, stream);
  leaving.done(result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS && captures) {
    capture_gate().ended(stream);
    captures_changed();
  }
  return result;
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return create_stream(driver().cuStreamCreate, phStream, Flags);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return create_stream(driver().cuStreamCreateWithPriority, phStream, flags, priority);
}

CUresult cuStreamDestroy(CUstream hStream) {
  return destroy_stream(driver().cuStreamDestroy, hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return destroy_stream(driver().cuStreamDestroy_v2, hStream);
}
