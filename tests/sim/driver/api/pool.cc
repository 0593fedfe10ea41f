// SPDX-License-Identifier: Apache-2.0
//
// Memory pools and stream-ordered allocation.
#include "memory/pool.h"

#include "api/api.h"
#include "memory/device.h"

using namespace simcuda;

namespace {

// The device a pool location names; none for kinds of pools that are not simulated.
Device* device_at(const CUmemLocation* location, CUmemAllocationType type) {
  const bool on_device = location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
                         type == CU_MEM_ALLOCATION_TYPE_PINNED;
  return on_device ? find_device(location->id) : nullptr;
}

template <class Which>
CUresult pool_at(CUmemoryPool* out, const CUmemLocation* location, CUmemAllocationType type,
                 Which&& which) {
  Device* device = device_at(location, type);
  if (out == nullptr || device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = which(*device);
  return CUDA_SUCCESS;
}

bool by_file(CUmemAllocationHandleType type, unsigned long long flags) {
  return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0;
}

}  // namespace

extern "C" {

SIM_PAIR(cuMemAllocAsync, _ptsz, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
         return call(
             kCall,
             [&] {
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 return allocate_async(kCall, nullptr, target, bytesize, dptr);
               });
             },
             out("dptr", dptr), in("bytesize", bytesize), stream(hStream));)

SIM_PAIR(cuMemAllocFromPoolAsync, _ptsz,
         (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
         return call(
             kCall,
             [&] {
               if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 return allocate_async(kCall, pool, target, bytesize, dptr);
               });
             },
             out("dptr", dptr), in("bytesize", bytesize), in("pool", pool), stream(hStream));)

SIM_PAIR(cuMemFreeAsync, _ptsz, (CUdeviceptr dptr, CUstream hStream),
         return call(
             kCall,
             [&] {
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 return free_async(kCall, target, dptr);
               });
             },
             address("dptr", dptr), stream(hStream));)

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  return call(
      Call::cuMemPoolCreate,
      [&] {
        if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return create_pool(*poolProps, pool);
      },
      out("pool", pool));
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return call(
      Call::cuMemPoolDestroy, [&] { return destroy_pool(pool); }, in("pool", pool));
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  return call(
      Call::cuMemPoolTrimTo, [&] { return trim_pool(pool, minBytesToKeep); }, in("pool", pool),
      in("minBytesToKeep", minBytesToKeep));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return call(Call::cuMemPoolSetAttribute, [&] { return set_pool_attribute(pool, attr, value); });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return call(Call::cuMemPoolGetAttribute, [&] { return get_pool_attribute(pool, attr, value); });
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  return call(Call::cuMemPoolSetAccess, [&] { return check_pool(pool); });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  return call(Call::cuMemPoolGetAccess, [&] {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult code = check_pool(memPool);
    if (code == CUDA_SUCCESS) *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return code;
  });
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  return call(Call::cuMemGetDefaultMemPool,
              [&] { return pool_at(pool_out, location, type, default_pool); });
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return call(Call::cuMemGetMemPool, [&] { return pool_at(pool, location, type, current_pool); });
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return call(Call::cuMemSetMemPool, [&] {
    Device* device = device_at(location, type);
    return device == nullptr ? CUDA_ERROR_INVALID_VALUE : set_current_pool(*device, pool);
  });
}

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  return call(
      Call::cuMemPoolExportToShareableHandle,
      [&] {
        if (handle_out == nullptr || !by_file(handleType, flags)) return CUDA_ERROR_INVALID_VALUE;
        return export_pool(pool, static_cast<int*>(handle_out));
      },
      in("pool", pool));
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
  return call(
      Call::cuMemPoolImportFromShareableHandle,
      [&] {
        if (pool_out == nullptr || !by_file(handleType, flags)) return CUDA_ERROR_INVALID_VALUE;
        // The descriptor itself travels in the pointer (cuda.h).
        return import_pool(static_cast<int>(reinterpret_cast<intptr_t>(handle)), pool_out);
      },
      out("pool_out", pool_out));
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  return call(
      Call::cuMemPoolExportPointer,
      [&] {
        if (shareData_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return export_pointer(ptr, shareData_out);
      },
      address("ptr", ptr));
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData* shareData) {
  return call(
      Call::cuMemPoolImportPointer,
      [&] {
        if (ptr_out == nullptr || shareData == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return in_context([&](Context&) { return import_pointer(pool, *shareData, ptr_out); });
      },
      out("ptr_out", ptr_out), in("pool", pool));
}

}  // extern "C"
