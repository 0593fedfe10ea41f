// SPDX-License-Identifier: Apache-2.0
//
// Start, version, errors, entry points.
#include <cstring>

#include "api/api.h"
#include "base/errors.h"
#include "exec/primary.h"
#include "memory/device.h"
#include "simcuda/runtime_table.h"
#include "table/proc_address.h"

using namespace simcuda;

namespace {

constexpr int kDriverVersion = 13050;

constexpr cuuint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

CUresult proc_address(const char* symbol, void** pfn, int version, cuuint64_t flags,
                      CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (version > kDriverVersion || (flags & ~kKnownFlags)) return CUDA_ERROR_INVALID_VALUE;
  // The runtime's probe: no name, version 0.
  if (*symbol == '\0') {
    *pfn = nullptr;
    if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
  }
  const bool want_per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const ProcAddress found = find_proc_address(symbol, version, want_per_thread);
  *pfn = found.call == nullptr ? nullptr : found.call->address;
  if (status != nullptr) {
    *status = found.call != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : found.name_known    ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found.call == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult make_primary_of(CUcontext* context, CUdevice ordinal) {
  Device* device = find_device(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : make_primary(*device, context);
}

CUresult describe_error(const char* description, const char** out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = description;
  return description == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int Flags) {
  return call(
      Call::cuInit, [&] { return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : initialise(); },
      in("Flags", Flags));
}

CUresult cuDriverGetVersion(int* driverVersion) {
  return call(Call::cuDriverGetVersion, [&] {
    if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = kDriverVersion;
    return CUDA_SUCCESS;
  });
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  return call(Call::cuGetErrorString, [&] { return describe_error(error_text(error), pStr); });
}

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  return call(Call::cuGetErrorName, [&] { return describe_error(error_name(error), pStr); });
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  return call(Call::cuGetProcAddress_v2,
              [&] { return proc_address(symbol, pfn, cudaVersion, flags, symbolStatus); });
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return call(Call::cuGetProcAddress,
              [&] { return proc_address(symbol, pfn, cudaVersion, flags, nullptr); });
}

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  static constexpr RuntimeTable kForRuntime = {sizeof(RuntimeTable), make_primary_of};
  return call(Call::cuGetExportTable, [&] {
    if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *ppExportTable = nullptr;
    if (std::memcmp(pExportTableId, &kRuntimeTable, sizeof kRuntimeTable) == 0) {
      *ppExportTable = &kForRuntime;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
  });
}

}  // extern "C"
