// SPDX-License-Identifier: Apache-2.0
// The simulated driver of this process as NVML sees it, and what every function checks first. Any
// thread may call.
#pragma once

#include <cuda.h>

#include "tests/sim/include/simcuda/devices.h"
#include "tests/sim/nvml/nvml.h"

namespace simnvml {

struct DriverCalls {
  decltype(&simcuda_devices) devices;
  decltype(&cuDriverGetVersion) version;
};

// Null where there is no simulated driver.
const DriverCalls* driver();

// Counted: as often as it is initialised it has to be shut down.
nvmlReturn_t initialise();
nvmlReturn_t shut_down();
bool initialised();

// A handle is the device's index plus one.
inline nvmlDevice_t handle_of(unsigned index) {
  return reinterpret_cast<nvmlDevice_t>(uintptr_t{index} + 1);
}
inline unsigned index_of(nvmlDevice_t device) {
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(device) - 1);
}

constexpr int kMostDevices = 64;

// What the driver says of a device, or the code for a handle that names none.
nvmlReturn_t describe(nvmlDevice_t device, SimcudaDevice* out);

// The number of devices; 0 where nothing is initialised.
unsigned device_count();

// Runs work(SimcudaDevice) for a device that exists, where NVML is initialised.
template <class Work>
nvmlReturn_t of_device(nvmlDevice_t device, Work&& work) {
  SimcudaDevice found{};
  const nvmlReturn_t code = describe(device, &found);
  return code == NVML_SUCCESS ? work(found) : code;
}

}  // namespace simnvml
