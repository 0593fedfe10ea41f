// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/queries.h"

#include "shim/order/ask.h"
#include "shim/pooled/refusal.h"

namespace cistern::shim {

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

}  // namespace cistern::shim
