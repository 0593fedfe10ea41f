// SPDX-License-Identifier: Apache-2.0
#include "exec/primary.h"

#include <map>
#include <mutex>

#include "exec/context.h"
#include "memory/device.h"

namespace simcuda {
namespace {

struct Retained {
  std::mutex mutex;
  std::map<int, unsigned> count;  // by device
};

Retained& retained() {
  static Retained& all = *new Retained;
  return all;
}

// With the lock.
CUresult bring_to_life(Context& primary, CUcontext* context) {
  if (!primary.alive()) primary.revive();
  *context = primary.handle();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult make_primary(Device& device, CUcontext* context) {
  const std::lock_guard lock(retained().mutex);
  return bring_to_life(device.primary(), context);
}

CUresult retain_primary(Device& device, CUcontext* context) {
  const std::lock_guard lock(retained().mutex);
  ++retained().count[device.ordinal()];
  return bring_to_life(device.primary(), context);
}

CUresult release_primary(Device& device) {
  const std::lock_guard lock(retained().mutex);
  unsigned& count = retained().count[device.ordinal()];
  if (count == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--count == 0) device.primary().end();
  return CUDA_SUCCESS;
}

CUresult reset_primary(Device& device) {
  const std::lock_guard lock(retained().mutex);
  if (device.primary().alive()) device.primary().end();
  retained().count[device.ordinal()] = 0;
  return CUDA_SUCCESS;
}

CUresult set_primary_flags(Device& device, unsigned flags) {
  device.primary().flags = flags;
  return CUDA_SUCCESS;
}

CUresult primary_state(Device& device, unsigned* flags, int* active) {
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = device.primary().flags;
  const std::lock_guard lock(retained().mutex);
  *active = retained().count[device.ordinal()] != 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace simcuda
