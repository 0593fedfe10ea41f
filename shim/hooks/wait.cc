// SPDX-License-Identifier: Apache-2.0
// Calls with which programs wait for their kernels. The error of a kernel that died usually shows
// here first, and ask() notes it (order/suspicion.h). What the scratch cache keeps of a stream is
// released before that stream is synchronised (scratch.h). Reclamation does not rely on these
// calls.
#include "shim/entry/faces.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/order/ask.h"
#include "shim/order/contexts/context.h"
#include "shim/process/settings.h"
#include "shim/watch/watch.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

namespace {

CUresult waited(CUresult result) {
  if (result == CUDA_SUCCESS) watch_synchronised();
  if (active()) current_context();  // one that no hook saw made is noticed here
  return result;
}

}  // namespace

CUresult cuEventSynchronize(CUevent hEvent) {
  return waited(ask(driver().cuEventSynchronize, hEvent));
}

CUresult cuStreamSynchronize(CUstream hStream) {
  if (scratch_on()) scratch_empty_stream(Legacy::name(hStream));
  return waited(ask(driver().cuStreamSynchronize, hStream));
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  if (scratch_on()) scratch_empty_stream(PerThread::name(hStream));
  return waited(ask(driver().cuStreamSynchronize_ptsz, hStream));
}
