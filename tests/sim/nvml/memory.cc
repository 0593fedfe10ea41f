// SPDX-License-Identifier: Apache-2.0
// Memory, and who has it: this process alone, as simulated devices are each process's own.

#include <unistd.h>

#include "tests/sim/nvml/driver.h"

using namespace simnvml;

namespace {

constexpr unsigned kNoMig = ~0u;

void fill(nvmlProcessInfo_v1_t* info, const SimcudaDevice& device) {
  *info = {static_cast<unsigned>(getpid()), device.used_bytes};
}

void fill(nvmlProcessInfo_v2_t* info, const SimcudaDevice& device) {
  *info = {static_cast<unsigned>(getpid()), device.used_bytes, kNoMig, kNoMig};
}

// `count`: room before, number of processes after. Too little room is told with the number.
template <class Info>
nvmlReturn_t processes(nvmlDevice_t handle, unsigned* count, Info* infos) {
  return of_device(handle, [&](const SimcudaDevice& device) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned room = infos == nullptr ? 0 : *count;
    *count = device.has_context != 0 ? 1 : 0;
    if (*count > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (*count != 0) fill(infos, device);
    return NVML_SUCCESS;
  });
}

// No process draws.
nvmlReturn_t no_processes(nvmlDevice_t device, unsigned* count) {
  return of_device(device, [&](const SimcudaDevice&) {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
  });
}

}  // namespace

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  return of_device(handle, [&](const SimcudaDevice& device) {
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *memory = {device.total_bytes, device.total_bytes - device.used_bytes, device.used_bytes};
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  return of_device(handle, [&](const SimcudaDevice& device) {
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned version = sizeof(nvmlMemory_v2_t) | (2u << 24);
    if (memory->version != version) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *memory = {version, device.total_bytes, 0, device.total_bytes - device.used_bytes,
               device.used_bytes};
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned* count,
                                                  nvmlProcessInfo_v1_t* infos) {
  return processes(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                     nvmlProcessInfo_v2_t* infos) {
  return processes(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                     nvmlProcessInfo_v2_t* infos) {
  return processes(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned* count,
                                                   nvmlProcessInfo_v1_t* infos) {
  return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                      nvmlProcessInfo_v2_t* infos) {
  return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                      nvmlProcessInfo_v2_t* infos) {
  return no_processes(device, count);
}
