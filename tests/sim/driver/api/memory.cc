// SPDX-License-Identifier: Apache-2.0
//
// Device, managed, pinned and registered memory.
#include "api/api.h"
#include "base/settings.h"
#include "exec/context_lock.h"
#include "memory/device.h"
#include "memory/device_memory.h"
#include "memory/host_memory.h"

using namespace simcuda;

namespace {

CUresult allocate_pitch(CUdeviceptr* dptr, size_t* pitch, size_t width, size_t height,
                        unsigned element) {
  const bool valid = dptr != nullptr && pitch != nullptr && width != 0 && height != 0 &&
                     (element == 4 || element == 8 || element == 16);
  if (!valid) return CUDA_ERROR_INVALID_VALUE;
  const size_t unit = settings().pitch_bytes, over = width % unit;
  const size_t row = over == 0 ? width : width - over + unit;
  if (row < width || height > SIZE_MAX / row) return CUDA_ERROR_OUT_OF_MEMORY;
  return in_context([&](Context& context) {
    const CUresult code = allocate_device(context, row * height, dptr);
    if (code == CUDA_SUCCESS) *pitch = row;
    return code;
  });
}

CUresult allocate_pinned(void** pp, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pp == nullptr || (flags & ~kKnown)) return CUDA_ERROR_INVALID_VALUE;
  return in_context([&](Context& context) {
    if (bytes == 0) {
      *pp = nullptr;
      return CUDA_SUCCESS;
    }
    CUdeviceptr address = 0;
    const CUresult code = allocate_host(context, MemoryKind::kPinned, bytes, flags, &address);
    if (code == CUDA_SUCCESS) *pp = reinterpret_cast<void*>(address);
    return code;
  });
}

CUresult allocate_managed(CUdeviceptr* dptr, size_t bytes, unsigned flags) {
  const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
  if (!known || dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return in_context([&](Context& context) {
    return allocate_host(context, MemoryKind::kManaged, bytes, flags, dptr);
  });
}

// The pinned or registered memory around a host address.
std::optional<Allocation> host_allocation(void* p) {
  const auto found = find_allocation(reinterpret_cast<CUdeviceptr>(p));
  return found && is_host(found->kind) ? found : std::nullopt;
}

CUresult free_pinned(void* p) {
  if (p == nullptr) return CUDA_SUCCESS;
  const auto found = host_allocation(p);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  const FreeLock lock(*found->context);
  wait_for_memory_of(*found->context);
  return free_host(reinterpret_cast<CUdeviceptr>(p), MemoryKind::kPinned);
}

CUresult memory_info(size_t* free, size_t* total) {
  return in_context([&](Context& context) {
    const Device& device = context.device();
    if (free != nullptr) *free = device.total_bytes() - device.used_bytes();
    if (total != nullptr) *total = device.total_bytes();
    return CUDA_SUCCESS;
  });
}

// The outputs are 0 where it fails. Without any, nothing is looked at, not even the context.
CUresult address_range(CUdeviceptr* base, size_t* size, CUdeviceptr dptr) {
  if (base == nullptr && size == nullptr) return CUDA_SUCCESS;
  if (base != nullptr) *base = 0;
  if (size != nullptr) *size = 0;
  return in_context([&](Context&) {
    const auto found = find_allocation(dptr);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = found->base;
    if (size != nullptr) *size = found->bytes;
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return call(
      Call::cuMemGetInfo_v2, [&] { return memory_info(free, total); }, out("free", free),
      out("total", total));
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return call(
      Call::cuMemAlloc_v2,
      [&] {
        return in_context(
            [&](Context& context) { return allocate_device(context, bytesize, dptr); });
      },
      out("dptr", dptr), in("bytesize", bytesize));
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return call(
      Call::cuMemAllocPitch_v2,
      [&] { return allocate_pitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes); },
      out("dptr", dptr), out("pPitch", pPitch), in("WidthInBytes", WidthInBytes),
      in("Height", Height), in("ElementSizeBytes", ElementSizeBytes));
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return call(
      Call::cuMemAllocManaged, [&] { return allocate_managed(dptr, bytesize, flags); },
      out("dptr", dptr), in("bytesize", bytesize), in("flags", flags));
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return call(
      Call::cuMemFree_v2, [&] { return in_context([&](Context&) { return free_device(dptr); }); },
      address("dptr", dptr));
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return call(
      Call::cuMemGetAddressRange_v2, [&] { return address_range(pbase, psize, dptr); },
      out("pbase", pbase), out("psize", psize), address("dptr", dptr));
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return call(
      Call::cuMemAllocHost_v2, [&] { return allocate_pinned(pp, bytesize, 0); }, out("pp", pp),
      in("bytesize", bytesize));
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return call(
      Call::cuMemHostAlloc, [&] { return allocate_pinned(pp, bytesize, Flags); }, out("pp", pp),
      in("bytesize", bytesize), in("Flags", Flags));
}

CUresult cuMemFreeHost(void* p) {
  return call(
      Call::cuMemFreeHost, [&] { return in_context([&](Context&) { return free_pinned(p); }); },
      in("p", p));
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  return call(
      Call::cuMemHostRegister_v2,
      [&] {
        return in_context(
            [&](Context& context) { return register_host(context, p, bytesize, Flags); });
      },
      in("p", p), in("bytesize", bytesize), in("Flags", Flags));
}

CUresult cuMemHostUnregister(void* p) {
  return call(
      Call::cuMemHostUnregister,
      [&] {
        return in_context([&](Context& context) {
          wait_for_context(context);
          return unregister_host(p);
        });
      },
      in("p", p));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  return call(Call::cuMemHostGetDevicePointer_v2, [&] {
    return in_context([&](Context&) {
      if (pdptr == nullptr || Flags != 0 || !host_allocation(p)) return CUDA_ERROR_INVALID_VALUE;
      *pdptr = reinterpret_cast<CUdeviceptr>(p);
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  return call(Call::cuMemHostGetFlags, [&] {
    return in_context([&](Context&) {
      const auto found = host_allocation(p);
      if (pFlags == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
      // With unified addressing all pinned memory is mapped, whether asked for or not.
      *pFlags = found->flags | CU_MEMHOSTALLOC_DEVICEMAP;
      return CUDA_SUCCESS;
    });
  });
}

}  // extern "C"
