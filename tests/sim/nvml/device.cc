// SPDX-License-Identifier: Apache-2.0
// Devices: how they are found, and what they are called. The names, buses and identifiers are those
// that the simulated driver tells.

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/sim/nvml/driver.h"

using namespace simnvml;

namespace {

constexpr unsigned kFirstBus = 0x17;  // as the simulated driver's

// "GPU-" and the bytes of the driver's identifier: "simcuda", zeros, the ordinal.
std::string uuid_of(unsigned index) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-73696d63-7564-6100-0000-0000000000%02x", index);
  return text;
}

nvmlReturn_t put(const std::string& from, char* to, unsigned length) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (from.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(to, from.c_str(), from.size() + 1);
  return NVML_SUCCESS;
}

template <class Is>
nvmlReturn_t find(nvmlDevice_t* device, Is&& is) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < device_count(); ++i) {
    if (!is(i)) continue;
    *device = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

template <class Out>
nvmlReturn_t answer(nvmlDevice_t device, Out* out, Out value) {
  return of_device(device, [&](const SimcudaDevice&) {
    if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *out = value;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t not_supported(nvmlDevice_t device) {
  return of_device(device, [](const SimcudaDevice&) { return NVML_ERROR_NOT_SUPPORTED; });
}

}  // namespace

nvmlReturn_t nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = device_count();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  const nvmlReturn_t code = find(device, [index](unsigned i) { return i == index; });
  return code == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : code;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return find(device, [uuid](unsigned i) { return uuid_of(i) == uuid; });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* bus_id, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
  unsigned bus = 0;
  if (bus_id == nullptr || std::sscanf(bus_id, "%*x:%x:", &bus) != 1) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  return find(device, [bus](unsigned i) { return kFirstBus + i == bus; });
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  return answer(device, index, index_of(device));
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned* number) {
  return answer(device, number, index_of(device));
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  return of_device(
      device, [&](const SimcudaDevice&) { return put("Simulated CUDA device", name, length); });
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  return of_device(
      device, [&](const SimcudaDevice&) { return put(uuid_of(index_of(device)), uuid, length); });
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return nvmlDeviceGetPciInfo_v3(device, info);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return nvmlDeviceGetPciInfo_v3(device, info);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return of_device(device, [&](const SimcudaDevice&) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned bus = kFirstBus + index_of(device);
    *info = {};
    info->bus = bus;
    std::snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "0000:%02X:00.0", bus);
    std::snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", bus);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  const nvmlReturn_t code = answer(device, major, 9);
  return code == NVML_SUCCESS ? answer(device, minor, 0) : code;
}

// 0: all is well between them, as the driver says of peer access.
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, int index, int* status) {
  const nvmlReturn_t code = answer(one, status, 0);
  return code == NVML_SUCCESS ? answer(other, status, 0) : code;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* current, unsigned* pending) {
  return not_supported(device);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t* info) {
  return of_device(device, [&](const SimcudaDevice&) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    // The size, below the number of the version: callers have structures of different ones.
    const unsigned version = info->version;
    const size_t bytes = version & 0xffffff;
    if (bytes < sizeof *info) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    std::memset(info, 0, bytes);  // the state NVML_GPU_FABRIC_STATE_NOT_SUPPORTED is 0
    info->version = version;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, int* active) {
  return not_supported(device);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, int* type) {
  return not_supported(device);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                 nvmlPciInfo_t* info) {
  return not_supported(device);
}
