// SPDX-License-Identifier: Apache-2.0
//
// Where managed memory should be. It is the host's here, whatever is advised; a prefetch is work
// that does nothing, in its order.
#include "api/api.h"
#include "exec/engine.h"
#include "memory/allocation.h"

using namespace simcuda;

namespace {

bool managed(CUdeviceptr address, size_t bytes) {
  const auto found = find_allocation(address);
  return found && found->kind == MemoryKind::kManaged && bytes != 0 &&
         found->contains(address, bytes);
}

CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice) {
  const bool known =
      advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  return in_context([&](Context&) {
    return known && managed(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult prefetch(Call id, DefaultStream kind, CUdeviceptr address, size_t bytes, CUstream handle) {
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    if (!managed(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, Work{.call = id});
  });
}

}  // namespace

extern "C" {

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  return call(Call::cuMemAdvise_v2, [&] { return advise(devPtr, count, advice); });
}

SIM_PAIR(cuMemPrefetchAsync_v2, _ptsz,
         (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
          CUstream hStream),
         return call(
             kCall, [&] { return prefetch(kCall, kDefault, devPtr, count, hStream); },
             address("devPtr", devPtr), in("count", count), stream(hStream));)

}  // extern "C"
