// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/unit_access.h"

#include "shim/order/contexts/context.h"
#include "shim/order/contexts/visit.h"

namespace cistern::shim {
namespace {

// What is unmapped meanwhile is no longer known to the driver; nobody needs access to it.
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

CUresult share_all_units() {
  CUresult result = CUDA_SUCCESS;
  for_each_context([&](Context& context) {
    const CUresult shared = share(context);
    if (shared != CUDA_SUCCESS) result = shared;
  });
  return result;
}

}  // namespace cistern::shim
