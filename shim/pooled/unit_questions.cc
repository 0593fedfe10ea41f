// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/unit_questions.h"

#include "shim/order/contexts/context.h"
#include "shim/pooled/memory.h"
#include "shim/pooled/queries.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

bool in_a_unit(CUdeviceptr address) {
  alloc::Chunk* chunk;
  return ours(address, &chunk) && chunk->is() == alloc::Role::range;
}

}  // namespace

CUdeviceptr not_in_a_unit(CUdeviceptr address, size_t bytes) {
  if (!policy().expandable()) return address;
  const bool ends_inside = bytes > 1 && in_a_unit(address + bytes - 1);
  return in_a_unit(address) || ends_inside ? kNowhere : address;
}

}  // namespace cistern::shim
