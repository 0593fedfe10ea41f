// SPDX-License-Identifier: Apache-2.0
//
// The devices as the simulated NVML shows them.
#include "simcuda/devices.h"

#include "base/gate.h"
#include "base/settings.h"
#include "exec/context.h"
#include "memory/device.h"

using namespace simcuda;

extern "C" __attribute__((visibility("default"))) int simcuda_devices(SimcudaDevice* out,
                                                                      int room) {
  const Settings& all = settings();
  if (!all.error.empty()) return -1;
  const auto count = static_cast<int>(all.memory_bytes.size());
  const bool in_use = (g_watch.load(std::memory_order_acquire) & (kCold | kForked)) == 0;
  for (int i = 0; i < count && i < room; ++i) {
    out[i] = {
        .total_bytes = all.memory_bytes[static_cast<size_t>(i)], .used_bytes = 0, .has_context = 0};
    if (const Device* device = in_use ? find_device(i) : nullptr) {
      out[i].used_bytes = device->used_bytes();
      out[i].has_context = has_context(*device) ? 1 : 0;
    }
  }
  return count;
}
