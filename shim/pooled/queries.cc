// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/queries.h"

#include "shim/order/ask.h"
#include "shim/order/contexts/context.h"
#include "shim/pooled/memory.h"
#include "shim/pooled/refusal.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

bool in_a_unit(CUdeviceptr address) {
  alloc::Chunk* chunk;
  return ours(address, &chunk) && chunk->is() == alloc::Role::range;
}

}  // namespace

CUresult block_range(alloc::ContextPool& pool, alloc::Chunk* chunk, CUdeviceptr* base, size_t* size,
                     CUdeviceptr address) {
  uint64_t start, bytes;
  if (refusal_here() != CUDA_SUCCESS || !pool.find(chunk, address, &start, &bytes)) {
    return ask(driver().cuMemGetAddressRange_v2, base, size, kNowhere);
  }
  if (base != nullptr) *base = start;
  if (size != nullptr) *size = bytes;
  return CUDA_SUCCESS;
}

CUdeviceptr not_in_a_unit(CUdeviceptr address, size_t bytes) {
  if (!policy().expandable()) return address;
  const bool ends_inside = bytes > 1 && in_a_unit(address + bytes - 1);
  return in_a_unit(address) || ends_inside ? kNowhere : address;
}

}  // namespace cistern::shim
