// SPDX-License-Identifier: Apache-2.0
// RMM's arena, which takes all it will have at once: PEER_ARENA bytes.
#include <rmm/mr/device/arena_memory_resource.hpp>

#include <cstdlib>

#include "rmm.h"

rmm::mr::device_memory_resource* make_resource(rmm::mr::cuda_memory_resource* upstream) {
  const char* bytes = std::getenv("PEER_ARENA");
  if (bytes == nullptr) std::exit(2);
  return new rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource>(
      upstream, std::strtoull(bytes, nullptr, 10));
}
