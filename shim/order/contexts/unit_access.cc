// SPDX-License-Identifier: Apache-2.0
#include "shim/order/ties.h"

#include <bit>

#include "shim/entry/driver.h"
#include "shim/order/contexts/context.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

// If memory is unmapped meanwhile, the driver no longer knows it, and no device needs access to it.
CUresult share(Context& owner) {
  const Visit visit(owner);
  CudaUnits* units = visit.open() ? owner.source.units() : nullptr;
  if (units == nullptr) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  owner.pool.for_each_mapped([&](uint64_t address, uint64_t bytes) {
    const auto changed = static_cast<CUresult>(units->access_changed(address, bytes));
    if (changed != CUDA_SUCCESS && changed != CUDA_ERROR_INVALID_VALUE) result = changed;
  });
  return result;
}

}  // namespace

CUresult share_units(CUcontext owner) {
  Context* context = working_context(owner);
  return context == nullptr ? CUDA_SUCCESS : share(*context);
}

uint64_t devices_of_current(CUdevice* current) {
  CUcontext handle = nullptr;
  if (driver().cuCtxGetDevice(current) != CUDA_SUCCESS ||
      driver().cuCtxGetCurrent(&handle) != CUDA_SUCCESS) {
    return 0;
  }
  const CUdevice own = *current;
  const auto bit = [](CUdevice device) { return uint64_t{1} << device; };
  const Context* context = active() ? working_context(handle) : nullptr;
  uint64_t devices = context != nullptr ? devices_reaching(context->number) : 0;
  for (uint64_t left = devices & ~bit(own); left != 0; left &= left - 1) {
    const CUdevice peer = std::countr_zero(left);
    int can = 0;
    const auto ask = driver().cuDeviceCanAccessPeer;
    if (ask == nullptr || ask(&can, peer, own) != CUDA_SUCCESS || can == 0) devices &= ~bit(peer);
  }
  return devices | bit(own);
}

CUresult share_all_units() {
  CUresult result = CUDA_SUCCESS;
  for_each_context([&](Context& context) {
    const CUresult shared = share(context);
    if (shared != CUDA_SUCCESS) result = shared;
  });
  return result;
}

}  // namespace cistern::shim
