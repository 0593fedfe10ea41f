// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays (kinds/arrays.h).
#include "shim/kinds/arrays.h"

#include "shim/entry/faces.h"
#include "shim/order/barrier/debts.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

constexpr auto kMemory = alloc::Memory::array;

// Only looked at where somebody watches: a null pointer is the driver's to refuse.
uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR* desc, unsigned levels) {
  return !watching() || desc == nullptr ? 0 : element_bytes(*desc, levels);
}
uint64_t bytes_of(const CUDA_ARRAY_DESCRIPTOR* desc) {
  if (!watching() || desc == nullptr) return 0;
  return element_bytes({desc->Width, desc->Height, 0, desc->Format, desc->NumChannels, 0},
                       /*levels=*/0);
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* desc) {
  return watch_allocation(kMemory, pHandle, bytes_of(desc), nullptr,
                          [=] { return create_array(pHandle, desc); });
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc) {
  return watch_allocation(kMemory, pHandle, bytes_of(desc, /*levels=*/0), nullptr,
                          [=] { return create_array(pHandle, desc); });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc,
                                unsigned int levels) {
  return watch_allocation(kMemory, pHandle, bytes_of(desc, levels), nullptr,
                          [=] { return create_array(pHandle, desc, levels); });
}

CUresult cuArrayDestroy(CUarray hArray) {
  pay_debts();
  return watch_free(kMemory, hArray, nullptr, [=] { return destroy_array(hArray); });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  pay_debts();
  return watch_free(kMemory, hMipmappedArray, nullptr,
                    [=] { return destroy_array(hMipmappedArray); });
}
