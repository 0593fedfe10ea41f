// SPDX-License-Identifier: Apache-2.0
// The calls with which programs wait for their kernels and meet what those died of: ask() notes it
// (shim/suspicion.h). Reclamation does not rely on them.
#include "shim/hooks/ask.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuEventSynchronize(CUevent hEvent) { return ask(driver().cuEventSynchronize, hEvent); }

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return ask(driver().cuMemcpyDtoH_v2, dstHost, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoH_v2_ptds(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return ask(driver().cuMemcpyDtoH_v2_ptds, dstHost, srcDevice, ByteCount);
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return ask(driver().cuStreamSynchronize, hStream);
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  return ask(driver().cuStreamSynchronize_ptsz, hStream);
}
