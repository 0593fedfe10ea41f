// SPDX-License-Identifier: Apache-2.0
// RMM's pool. It begins empty and grows as it does by default, where half of what is free would be
// taken at once otherwise.
#include <rmm/mr/device/pool_memory_resource.hpp>

#include "rmm.h"

rmm::mr::device_memory_resource* make_resource(rmm::mr::cuda_memory_resource* upstream) {
  return new rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>(upstream, 0);
}
