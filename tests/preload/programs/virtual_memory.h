// SPDX-License-Identifier: Apache-2.0
// How much virtual memory the process has of the simulated driver. Another driver does not say: all
// counts are 0.
#pragma once

#include <dlfcn.h>

#include "../../sim/include/simcuda/watch.h"
#include "driver_codes.h"

inline SimcudaVirtualMemory driver_virtual_memory() {
  SimcudaVirtualMemory there{};
  const auto ask = reinterpret_cast<void (*)(SimcudaVirtualMemory*)>(
      dlsym(RTLD_DEFAULT, "simcuda_virtual_memory"));
  if (ask != nullptr) ask(&there);
  return there;
}

inline void say_virtual_memory_left() {
  const SimcudaVirtualMemory left = driver_virtual_memory();
  std::printf("left: %llu units, %llu mapped, %llu ranges\n",
              static_cast<unsigned long long>(left.handles),
              static_cast<unsigned long long>(left.mappings),
              static_cast<unsigned long long>(left.reservations));
}
