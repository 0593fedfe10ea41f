// SPDX-License-Identifier: Apache-2.0
//
// Devices, their properties and their primary contexts.
#include <cstdio>
#include <cstring>

#include "api/api.h"
#include "api/attributes.h"
#include "exec/primary.h"
#include "memory/device.h"
#include "memory/pool.h"

using namespace simcuda;

namespace {

constexpr unsigned kFirstBus = 0x17;

// Runs work(Device&) for a device that exists.
template <class Work>
CUresult of_device(CUdevice ordinal, Work&& work) {
  Device* device = find_device(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : work(*device);
}

// A device whose out-parameter is wanted.
template <class Out, class Work>
CUresult ask_device(CUdevice ordinal, Out* out, Work&& work) {
  return out == nullptr ? CUDA_ERROR_INVALID_VALUE : of_device(ordinal, work);
}

CUresult device_uuid(CUuuid* uuid, CUdevice dev) {
  return ask_device(dev, uuid, [&](Device& device) {
    std::memset(uuid->bytes, 0, sizeof uuid->bytes);
    std::memcpy(uuid->bytes, "simcuda", 7);
    uuid->bytes[15] = static_cast<char>(device.ordinal());
    return CUDA_SUCCESS;
  });
}

CUresult release(CUdevice dev) { return of_device(dev, release_primary); }
CUresult reset(CUdevice dev) { return of_device(dev, reset_primary); }

CUresult set_flags(CUdevice dev, unsigned flags) {
  return of_device(dev, [&](Device& device) { return set_primary_flags(device, flags); });
}

}  // namespace

extern "C" {

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call(Call::cuDeviceGet, [&] {
    return ask_device(ordinal, device, [&](Device&) {
      *device = ordinal;
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuDeviceGetCount(int* count) {
  return call(Call::cuDeviceGetCount, [&] {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = device_count();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  return call(Call::cuDeviceGetName, [&] {
    return ask_device(dev, name, [&](Device&) {
      std::snprintf(name, static_cast<size_t>(len), "Simulated CUDA device");
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  return call(Call::cuDeviceGetUuid, [&] { return device_uuid(uuid, dev); });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  return call(Call::cuDeviceGetUuid_v2, [&] { return device_uuid(uuid, dev); });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return call(Call::cuDeviceTotalMem_v2, [&] {
    return ask_device(dev, bytes, [&](Device& device) {
      *bytes = device.total_bytes();
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return call(Call::cuDeviceGetAttribute, [&] {
    return ask_device(dev, pi, [&](Device& device) {
      if (attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      const bool bus = attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
      *pi = bus ? static_cast<int>(kFirstBus) + device.ordinal() : device_attribute(attrib);
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  return call(Call::cuDeviceComputeCapability, [&] {
    return ask_device(dev, major, [&](Device&) {
      *major = device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
      if (minor != nullptr) *minor = device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  return call(Call::cuDeviceGetPCIBusId, [&] {
    return ask_device(dev, pciBusId, [&](Device& device) {
      std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0",
                    kFirstBus + static_cast<unsigned>(device.ordinal()));
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  return call(Call::cuDeviceGetByPCIBusId, [&] {
    unsigned bus = 0;
    if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (std::sscanf(pciBusId, "%*x:%x", &bus) != 1) return CUDA_ERROR_INVALID_DEVICE;
    return of_device(static_cast<CUdevice>(bus - kFirstBus), [&](Device& device) {
      *dev = device.ordinal();
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  return call(Call::cuDeviceCanAccessPeer, [&] {
    return ask_device(dev, canAccessPeer, [&](Device&) {
      return of_device(peerDev, [&](Device&) {
        *canAccessPeer = dev != peerDev ? 1 : 0;
        return CUDA_SUCCESS;
      });
    });
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return call(
      Call::cuDevicePrimaryCtxRetain,
      [&] {
        return ask_device(dev, pctx, [&](Device& device) { return retain_primary(device, pctx); });
      },
      out("pctx", pctx), in("dev", dev));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return call(
      Call::cuDevicePrimaryCtxRelease, [&] { return release(dev); }, in("dev", dev));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return call(
      Call::cuDevicePrimaryCtxRelease_v2, [&] { return release(dev); }, in("dev", dev));
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  return call(
      Call::cuDevicePrimaryCtxReset, [&] { return reset(dev); }, in("dev", dev));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return call(
      Call::cuDevicePrimaryCtxReset_v2, [&] { return reset(dev); }, in("dev", dev));
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return call(Call::cuDevicePrimaryCtxSetFlags, [&] { return set_flags(dev, flags); });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return call(Call::cuDevicePrimaryCtxSetFlags_v2, [&] { return set_flags(dev, flags); });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  return call(Call::cuDevicePrimaryCtxGetState, [&] {
    return of_device(dev, [&](Device& device) { return primary_state(device, flags, active); });
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  return call(Call::cuDeviceGetDefaultMemPool, [&] {
    return ask_device(dev, pool_out, [&](Device& device) {
      *pool_out = default_pool(device);
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  return call(Call::cuDeviceGetMemPool, [&] {
    return ask_device(dev, pool, [&](Device& device) {
      *pool = current_pool(device);
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  return call(Call::cuDeviceSetMemPool, [&] {
    return of_device(dev, [&](Device& device) { return set_current_pool(device, pool); });
  });
}

}  // extern "C"
