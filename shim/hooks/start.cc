// SPDX-License-Identifier: Apache-2.0
// The calls by which a program starts CUDA and finds its functions.
#include "shim/entry/faces.h"
#include "shim/entry/routes.h"
#include "shim/order/ask.h"
#include "shim/order/careful.h"
#include "shim/process/life.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuInit(unsigned int Flags) {
  const CUresult result = ask(driver().cuInit, Flags);
  if (result == CUDA_SUCCESS) {
    cuda_started(driver().complete);
    tell_unknown_functions();
  }
  return result;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  const CUresult result = ask(driver().cuGetProcAddress, symbol, pfn, cudaVersion, flags);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    reroute(symbol, cudaVersion, flags, pfn);
  }
  return result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  const CUresult result =
      ask(driver().cuGetProcAddress_v2, symbol, pfn, cudaVersion, flags, symbolStatus);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    reroute(symbol, cudaVersion, flags, pfn);
  }
  return result;
}
