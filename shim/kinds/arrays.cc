// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/arrays.h"

#include <algorithm>

#include "shim/kinds/array_bytes.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/fill.h"
#include "shim/order/ask.h"
#include "shim/order/contexts/context.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/pooled/refusal.h"

namespace cistern::shim {
namespace {

template <typename Array>
uint64_t key_of(Array array) {
  return reinterpret_cast<uint64_t>(array);
}

// Counts an array that is not filled, because it can only be written through copies and surfaces.
CUresult unfilled(CUresult result) {
  if (result == CUDA_SUCCESS && fill_on()) note_unfilled();
  return result;
}

template <typename Array, typename Create>
CUresult create_charged(Array* out, const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels,
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

CUresult create_array(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* desc) {
  const auto real = driver().cuArrayCreate_v2;
  if (!charging() || out == nullptr || desc == nullptr) {
    return unfilled(ask_for_memory(real, out, desc));
  }
  return create_charged(out, {desc->Width, desc->Height, 0, desc->Format, desc->NumChannels, 0},
                        /*levels=*/0, [&] { return ask(real, out, desc); });
}

CUresult create_array(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* desc) {
  const auto real = driver().cuArray3DCreate_v2;
  if (!charging() || out == nullptr || desc == nullptr) {
    return unfilled(ask_for_memory(real, out, desc));
  }
  return create_charged(out, *desc, /*levels=*/0, [&] { return ask(real, out, desc); });
}

CUresult create_array(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* desc, unsigned levels) {
  const auto real = driver().cuMipmappedArrayCreate;
  if (!charging() || out == nullptr || desc == nullptr) {
    return unfilled(ask_for_memory(real, out, desc, levels));
  }
  return create_charged(out, *desc, std::max(levels, 1u),
                        [&] { return ask(real, out, desc, levels); });
}

CUresult destroy_array(CUarray array) {
  return refunding(key_of(array), [&] { return ask(driver().cuArrayDestroy, array); });
}

CUresult destroy_array(CUmipmappedArray array) {
  return refunding(key_of(array), [&] { return ask(driver().cuMipmappedArrayDestroy, array); });
}

}  // namespace cistern::shim
