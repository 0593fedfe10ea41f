// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/queries.h"

#include "shim/order/ask.h"
#include "shim/order/contexts/context.h"
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

// The driver's handle names its whole allocation. For a whole block that is the block; inside a
// slab the other process would silently get the slab's beginning, so it is refused.
CUresult export_block(alloc::Chunk* chunk, CUipcMemHandle* handle, CUdeviceptr address) {
  Context& owner = *context_of(chunk);
  if (const CUresult result = refusal(owner); result != CUDA_SUCCESS) return result;
  alloc::ContextPool& pool = owner.pool;
  if (!pool.is_live(chunk, address)) return CUDA_ERROR_INVALID_VALUE;
  if (alloc::cuts_blocks(chunk->is())) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = ask(driver().cuIpcGetMemHandle, handle, address);
  if (result == CUDA_SUCCESS) {
    pool.mark_exported(chunk, address);
    pool.note_size_told(chunk);
  }
  return result;
}

}  // namespace cistern::shim
