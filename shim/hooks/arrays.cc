// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays. The driver creates them; their bytes are charged to the device of
// the current context. Only the driver knows how many bytes an array takes, so Cistern asks it. The
// driver checks the program's arguments. Any thread.
#include <algorithm>
#include <cstdint>

#include "shim/entry/driver.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/unpooled.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

constexpr unsigned kWithoutMemory = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

uint64_t channel_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

// Bytes that the driver says an array requires; 0 if it does not say. The driver says it only of
// arrays with deferred mapping. So this creates a twin with deferred mapping, which never gets
// memory, and destroys it.
template <typename Array, typename Create, typename Ask, typename Destroy>
uint64_t required_bytes(Create create, Ask ask, Destroy destroy, CUdevice device) {
  Array twin;
  if (ask == nullptr || destroy == nullptr || create(&twin) != CUDA_SUCCESS) return 0;
  CUDA_ARRAY_MEMORY_REQUIREMENTS required{};
  const CUresult result = ask(&required, twin, device);
  destroy(twin);
  return result == CUDA_SUCCESS ? required.size : 0;
}

// Bytes of the elements alone: a lower bound. 0 if the format's size is unknown or the sum
// overflows 64 bits. Unlike the other extents, the number of layers does not shrink with the level.
uint64_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned levels) {
  const bool layered = (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  const uint64_t texel = d.NumChannels * channel_bytes(d.Format);
  uint64_t sum = 0;
  for (unsigned level = 0; level < std::clamp(levels, 1u, 64u); ++level) {
    const auto extent = [&](uint64_t n) { return std::max<uint64_t>(n >> level, 1); };
    uint64_t bytes = texel, product;
    for (const uint64_t n : {extent(d.Width), extent(d.Height),
                             layered ? std::max<uint64_t>(d.Depth, 1) : extent(d.Depth)}) {
      if (__builtin_mul_overflow(bytes, n, &product)) return 0;  // the driver will refuse it
      bytes = product;
    }
    if (__builtin_add_overflow(sum, bytes, &sum)) return 0;
  }
  return sum;
}

// Bytes that an array of this description takes in the current context, on `device`. `levels` 0:
// not mipmapped. 0 if the array takes none (sparse, deferred mapping) or if the size is unknown.
// May call the driver, but not while a capture is in progress.
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels, CUdevice device) {
  if ((description.Flags & kWithoutMemory) != 0) return 0;
  const Driver& d = driver();
  CUDA_ARRAY3D_DESCRIPTOR twin = description;
  twin.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
  uint64_t bytes = 0;
  if (const GatePass pass; pass && levels == 0 && d.cuArray3DCreate_v2 != nullptr) {
    bytes = required_bytes<CUarray>([&](CUarray* a) { return d.cuArray3DCreate_v2(a, &twin); },
                                    d.cuArrayGetMemoryRequirements, d.cuArrayDestroy, device);
  } else if (pass && levels != 0 && d.cuMipmappedArrayCreate != nullptr) {
    bytes = required_bytes<CUmipmappedArray>(
        [&](CUmipmappedArray* a) { return d.cuMipmappedArrayCreate(a, &twin, levels); },
        d.cuMipmappedArrayGetMemoryRequirements, d.cuMipmappedArrayDestroy, device);
  }
  return bytes != 0 ? bytes : element_bytes(description, levels);
}

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

constexpr auto kMemory = alloc::Memory::array;

// Reads the description only if calls are watched. A null pointer is left to the driver to refuse.
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
