// SPDX-License-Identifier: Apache-2.0
// The calls with which programs wait for their kernels and meet what those died of: ask() notes it
// (shim/order/suspicion.h). Reclamation does not rely on them; what a stream left in the scratch
// cache goes back with its synchronisation.
#include "shim/entry/faces.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/order/ask.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuEventSynchronize(CUevent hEvent) { return ask(driver().cuEventSynchronize, hEvent); }

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return ask(driver().cuMemcpyDtoH_v2, dstHost, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoH_v2_ptds(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return ask(driver().cuMemcpyDtoH_v2_ptds, dstHost, srcDevice, ByteCount);
}

CUresult cuStreamSynchronize(CUstream hStream) {
  if (scratch_on()) scratch_empty_stream(Legacy::name(hStream));
  return ask(driver().cuStreamSynchronize, hStream);
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  if (scratch_on()) scratch_empty_stream(PerThread::name(hStream));
  return ask(driver().cuStreamSynchronize_ptsz, hStream);
}
