// SPDX-License-Identifier: Apache-2.0
// Last error, names and texts. The texts are the driver's for the same number, but for the codes
// that only the runtime has.

#include <cuda_runtime_api.h>

#include "tests/sim/cudart/state.h"

using namespace simcudart;

namespace {

const char* name_of(cudaError_t error) {
  switch (error) {
#define SIMCUDART_NAME(name) \
  case name:                 \
    return #name;
    SIMCUDART_NAME(cudaSuccess)
    SIMCUDART_NAME(cudaErrorInvalidValue)
    SIMCUDART_NAME(cudaErrorMemoryAllocation)
    SIMCUDART_NAME(cudaErrorInitializationError)
    SIMCUDART_NAME(cudaErrorCudartUnloading)
    SIMCUDART_NAME(cudaErrorInvalidConfiguration)
    SIMCUDART_NAME(cudaErrorInvalidSymbol)
    SIMCUDART_NAME(cudaErrorInvalidMemcpyDirection)
    SIMCUDART_NAME(cudaErrorInsufficientDriver)
    SIMCUDART_NAME(cudaErrorInvalidDeviceFunction)
    SIMCUDART_NAME(cudaErrorNoDevice)
    SIMCUDART_NAME(cudaErrorInvalidDevice)
    SIMCUDART_NAME(cudaErrorDeviceUninitialized)
    SIMCUDART_NAME(cudaErrorPeerAccessUnsupported)
    SIMCUDART_NAME(cudaErrorInvalidResourceHandle)
    SIMCUDART_NAME(cudaErrorIllegalState)
    SIMCUDART_NAME(cudaErrorSymbolNotFound)
    SIMCUDART_NAME(cudaErrorNotReady)
    SIMCUDART_NAME(cudaErrorIllegalAddress)
    SIMCUDART_NAME(cudaErrorPeerAccessAlreadyEnabled)
    SIMCUDART_NAME(cudaErrorPeerAccessNotEnabled)
    SIMCUDART_NAME(cudaErrorContextIsDestroyed)
    SIMCUDART_NAME(cudaErrorHostMemoryAlreadyRegistered)
    SIMCUDART_NAME(cudaErrorHostMemoryNotRegistered)
    SIMCUDART_NAME(cudaErrorLaunchFailure)
    SIMCUDART_NAME(cudaErrorNotPermitted)
    SIMCUDART_NAME(cudaErrorNotSupported)
    SIMCUDART_NAME(cudaErrorStreamCaptureUnsupported)
    SIMCUDART_NAME(cudaErrorStreamCaptureInvalidated)
    SIMCUDART_NAME(cudaErrorStreamCaptureMerge)
    SIMCUDART_NAME(cudaErrorStreamCaptureUnmatched)
    SIMCUDART_NAME(cudaErrorStreamCaptureUnjoined)
    SIMCUDART_NAME(cudaErrorStreamCaptureIsolation)
    SIMCUDART_NAME(cudaErrorStreamCaptureImplicit)
    SIMCUDART_NAME(cudaErrorCapturedEvent)
    SIMCUDART_NAME(cudaErrorStreamCaptureWrongThread)
    SIMCUDART_NAME(cudaErrorUnknown)
#undef SIMCUDART_NAME
    default:
      return nullptr;
  }
}

const char* text_of(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidSymbol:
      return "invalid device symbol";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    default:
      return nullptr;
  }
}

}  // namespace

cudaError_t cudaGetLastError() { return take_last_error(); }

cudaError_t cudaPeekAtLastError() { return last_error(); }

const char* cudaGetErrorName(cudaError_t error) {
  if (const char* name = name_of(error)) return name;
  const char* name = nullptr;
  if (driver() != nullptr) driver()->cuGetErrorName_(static_cast<CUresult>(error), &name);
  return name != nullptr ? name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  if (const char* text = text_of(error)) return text;
  const char* text = nullptr;
  if (driver() != nullptr) driver()->cuGetErrorString_(static_cast<CUresult>(error), &text);
  return text != nullptr ? text : "unrecognized error code";
}
