// SPDX-License-Identifier: Apache-2.0
// Questions about an address, and calls that make memory known outside the process
// (kinds/pointer.h).
#include "shim/kinds/pointer.h"

#include "shim/entry/faces.h"
#include "shim/kinds/linear.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/host_visible.h"
#include "shim/order/contexts/context.h"
#include "shim/pooled/exported.h"
#include "shim/pooled/memory.h"
#include "shim/pooled/pinned_memory.h"
#include "shim/pooled/queries.h"

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

namespace {

// For a device that reaches the memory from then on.
void note_shared(CUpointer_attribute asked) {
  if (asked == CU_POINTER_ATTRIBUTE_P2P_TOKENS) everything_becomes_visible();
}

}  // namespace

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  cistern::alloc::Chunk* chunk;
  if (ours(dptr, &chunk)) return block_range(context_of(chunk)->pool, chunk, pbase, psize, dptr);
  return pinned(reinterpret_cast<void*>(dptr), &chunk) ? pinned_range(chunk, pbase, psize, dptr)
                                                       : linear_range(pbase, psize, dptr);
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  note_shared(attribute);
  const CUresult result = pointer_attribute(data, attribute, ptr);
  if (result == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER &&
      *static_cast<const CUdeviceptr*>(data) != ptr) {
    everything_becomes_visible();
  }
  return result;
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  for (unsigned i = 0; attributes != nullptr && i < numAttributes; ++i) note_shared(attributes[i]);
  return pointer_attributes(numAttributes, attributes, data, ptr);
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) everything_becomes_visible();
  return set_pointer_attribute(value, attribute, ptr);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  everything_becomes_visible();
  cistern::alloc::Chunk* chunk;
  return ours(dptr, &chunk) ? export_block(chunk, pHandle, dptr)
                            : ask(driver().cuIpcGetMemHandle, pHandle, dptr);
}

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags) {
  everything_becomes_visible();
  return range_handle(handle, dptr, size, handleType, flags);
}
