// SPDX-License-Identifier: Apache-2.0
// Arrays: the driver's own, charged to the device of the context they are created in.
#include "shim/kinds/arrays.h"

#include <algorithm>

#include "shim/hooks/ask.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/fill.h"

namespace cistern::shim {
namespace {

template <typename Array>
uint64_t key_of(Array array) {
  return reinterpret_cast<uint64_t>(array);
}

// Nothing can be written into an array but through copies and surfaces: it is not filled.
CUresult unfilled(CUresult result) {
  if (result == CUDA_SUCCESS && fill_on()) note_unfilled();
  return result;
}

template <typename Array, typename Create>
CUresult create_array(Array* out, const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels,
                      Create create) {
  const CUdevice device = current_device();
  Charge charge(MemoryKind::array, device,
                device == kNoDevice ? 0 : array_bytes(description, levels, device));
  if (charge.refused()) return no_room();
  const CUresult result = charge.ask(create);
  if (result == CUDA_SUCCESS) charge.keep(key_of(*out), current_handle());
  return unfilled(result);
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* desc) {
  const auto real = driver().cuArrayCreate_v2;
  if (!charging() || pHandle == nullptr || desc == nullptr) {
    return unfilled(ask_for_memory(real, pHandle, desc));
  }
  return create_array(pHandle, {desc->Width, desc->Height, 0, desc->Format, desc->NumChannels, 0},
                      /*levels=*/0, [&] { return ask(real, pHandle, desc); });
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc) {
  const auto real = driver().cuArray3DCreate_v2;
  if (!charging() || pHandle == nullptr || desc == nullptr) {
    return unfilled(ask_for_memory(real, pHandle, desc));
  }
  return create_array(pHandle, *desc, /*levels=*/0, [&] { return ask(real, pHandle, desc); });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc,
                                unsigned int levels) {
  const auto real = driver().cuMipmappedArrayCreate;
  if (!charging() || pHandle == nullptr || desc == nullptr) {
    return unfilled(ask_for_memory(real, pHandle, desc, levels));
  }
  return create_array(pHandle, *desc, std::max(levels, 1u),
                      [&] { return ask(real, pHandle, desc, levels); });
}

CUresult cuArrayDestroy(CUarray hArray) {
  return refunding(key_of(hArray), [&] { return ask(driver().cuArrayDestroy, hArray); });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return refunding(key_of(hMipmappedArray),
                   [&] { return ask(driver().cuMipmappedArrayDestroy, hMipmappedArray); });
}
