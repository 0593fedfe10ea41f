// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/nvml/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <mutex>

namespace simnvml {
namespace {

constinit std::mutex g_mutex;
constinit int g_initialised = 0;

DriverCalls g_driver;

// NVIDIA's own library asks for a table of the driver's, too. There is none for this one.
void ask_for_table(void* library) {
  using GetExportTable = int(const void** table, const void* id);
  constexpr unsigned char kId[16] = {};
  const void* table = nullptr;
  const auto get = reinterpret_cast<GetExportTable*>(dlsym(library, "cuGetExportTable"));
  if (get != nullptr) get(&table, kId);
}

bool load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return false;
  ask_for_table(library);
  g_driver.devices =
      reinterpret_cast<decltype(g_driver.devices)>(dlsym(library, "simcuda_devices"));
  g_driver.version =
      reinterpret_cast<decltype(g_driver.version)>(dlsym(library, "cuDriverGetVersion"));
  return g_driver.devices != nullptr && g_driver.version != nullptr;
}

}  // namespace

const DriverCalls* driver() {
  static const bool loaded = load();
  return loaded ? &g_driver : nullptr;
}

nvmlReturn_t initialise() {
  if (driver() == nullptr || driver()->devices(nullptr, 0) < 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  const std::lock_guard lock(g_mutex);
  ++g_initialised;
  return NVML_SUCCESS;
}

nvmlReturn_t shut_down() {
  const std::lock_guard lock(g_mutex);
  if (g_initialised == 0) return NVML_ERROR_UNINITIALIZED;
  --g_initialised;
  return NVML_SUCCESS;
}

bool initialised() {
  const std::lock_guard lock(g_mutex);
  return g_initialised > 0;
}

unsigned device_count() {
  return initialised() ? static_cast<unsigned>(driver()->devices(nullptr, 0)) : 0;
}

nvmlReturn_t describe(nvmlDevice_t device, SimcudaDevice* out) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  SimcudaDevice all[kMostDevices];
  const int count = driver()->devices(all, kMostDevices);
  const unsigned index = index_of(device);
  if (index >= static_cast<unsigned>(std::min(count, kMostDevices))) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  *out = all[index];
  return NVML_SUCCESS;
}

}  // namespace simnvml
