// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management and IPC.
#include "memory/vmm.h"

#include "api/api.h"
#include "memory/ipc.h"

using namespace simcuda;

namespace {

CUresult open_ipc(CUdeviceptr* pdptr, const CUipcMemHandle& handle, unsigned flags) {
  // cuda.h: "Must be specified as" this; an H100 refuses anything else.
  if (pdptr == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return in_context([&](Context& context) { return open_ipc_handle(context, handle, pdptr); });
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity_out, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  return call(Call::cuMemGetAllocationGranularity, [&] {
    if (granularity_out == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return granularity(*prop, granularity_out);
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  return call(
      Call::cuMemAddressReserve,
      [&] {
        if (ptr == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        return reserve_address(size, alignment, ptr);
      },
      out("ptr", ptr), in("size", size), in("alignment", alignment), address("addr", addr));
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return call(
      Call::cuMemAddressFree, [&] { return free_address(ptr, size); }, address("ptr", ptr),
      in("size", size));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  return call(
      Call::cuMemCreate,
      [&] {
        if (handle == nullptr || prop == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        return create_physical(size, *prop, handle);
      },
      out_count("handle", handle), in("size", size));
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call(
      Call::cuMemRelease, [&] { return release_physical(handle); }, in("handle", handle));
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  return call(
      Call::cuMemRetainAllocationHandle,
      [&] {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return retain_physical(reinterpret_cast<CUdeviceptr>(addr), handle);
      },
      out_count("handle", handle), in("addr", addr));
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  return call(Call::cuMemGetAllocationPropertiesFromHandle, [&] {
    return prop == nullptr ? CUDA_ERROR_INVALID_VALUE : physical_properties(handle, prop);
  });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return call(
      Call::cuMemMap,
      [&] {
        return flags != 0 ? CUDA_ERROR_INVALID_VALUE : map_physical(ptr, size, offset, handle);
      },
      address("ptr", ptr), in("size", size), in("offset", offset), in("handle", handle));
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return call(
      Call::cuMemUnmap, [&] { return unmap_physical(ptr, size); }, address("ptr", ptr),
      in("size", size));
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return call(
      Call::cuMemSetAccess, [&] { return set_access(ptr, size, desc, count); }, address("ptr", ptr),
      in("size", size), in("count", count));
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  return call(Call::cuMemGetAccess, [&] {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return get_access(ptr, location->id, flags);
  });
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  return call(
      Call::cuMemExportToShareableHandle,
      [&] {
        const bool supported = shareableHandle != nullptr && flags == 0 &&
                               handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        if (!supported) return CUDA_ERROR_INVALID_VALUE;
        return export_physical(handle, static_cast<int*>(shareableHandle));
      },
      in("handle", handle));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  return call(
      Call::cuMemImportFromShareableHandle,
      [&] {
        if (handle == nullptr || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        // The descriptor itself travels in the pointer (cuda.h).
        return import_physical(static_cast<int>(reinterpret_cast<intptr_t>(osHandle)), handle);
      },
      out_count("handle", handle));
}

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags) {
  return call(
      Call::cuMemGetHandleForAddressRange,
      [&] {
        const bool supported =
            handle != nullptr && handleType == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD &&
            (flags & ~uint64_t{CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE}) == 0;
        if (!supported) return CUDA_ERROR_INVALID_VALUE;
        return get_range_file(dptr, size, static_cast<int*>(handle));
      },
      address("dptr", dptr), in("size", size));
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  return call(
      Call::cuIpcGetMemHandle,
      [&] {
        if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return in_context([&](Context&) { return get_ipc_handle(dptr, pHandle); });
      },
      address("dptr", dptr));
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return call(
      Call::cuIpcOpenMemHandle, [&] { return open_ipc(pdptr, handle, Flags); }, out("pdptr", pdptr),
      in("Flags", Flags));
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return call(
      Call::cuIpcOpenMemHandle_v2, [&] { return open_ipc(pdptr, handle, Flags); },
      out("pdptr", pdptr), in("Flags", Flags));
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  return call(
      Call::cuIpcCloseMemHandle,
      [&] { return in_context([&](Context&) { return close_ipc_handle(dptr); }); },
      address("dptr", dptr));
}

}  // extern "C"
