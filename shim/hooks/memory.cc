// SPDX-License-Identifier: Apache-2.0
// Memory: what comes from the pools (memory.cc), and other linear memory, which stays the driver's.
#include "shim/kinds/charges.h"
#include "shim/kinds/fill.h"
#include "shim/order/device.h"

#include "shim/hooks/ask.h"

namespace cistern::shim {
namespace {

constexpr bool valid_element(unsigned bytes) { return bytes == 4 || bytes == 8 || bytes == 16; }

// The driver chooses the pitch; what it chooses today is charged before it is asked.
constexpr size_t kUsualPitch = 512;

uint64_t usual_bytes(size_t width, size_t height) {
  const uint64_t row = (uint64_t{width} + kUsualPitch - 1) / kUsualPitch * kUsualPitch;
  uint64_t bytes;
  return __builtin_mul_overflow(row, uint64_t{height}, &bytes) ? UINT64_MAX : bytes;
}

CUresult allocate_pitch(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                        unsigned element) {
  const CUdeviceptr address_before = *out;
  const size_t pitch_before = *pitch;
  Charge charge(MemoryKind::direct, current_device(), width == 0 ? 0 : usual_bytes(width, height));
  if (charge.refused()) {
    return valid_element(element) ? no_room() : CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = charge.ask(
      [&] { return ask(driver().cuMemAllocPitch_v2, out, pitch, width, height, element); });
  if (result != CUDA_SUCCESS) return result;
  if (charge.resize(*pitch * height)) {
    charge.keep(*out, current_handle());
    return result;
  }
  driver().cuMemFree_v2(*out);
  *out = address_before;
  *pitch = pitch_before;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult allocate_managed(CUdeviceptr* out, size_t bytes, unsigned flags) {
  const auto real = driver().cuMemAllocManaged;
  if (!charging() || out == nullptr) return ask_for_memory(real, out, bytes, flags);
  Charge charge(MemoryKind::managed, current_device(), bytes);
  const CUresult result = charge.ask([&] { return ask(real, out, bytes, flags); });
  if (result == CUDA_SUCCESS) charge.keep(*out, current_handle());
  return result;
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

// --- memory ---

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) { return allocate(dptr, bytesize); }

CUresult cuMemFree_v2(CUdeviceptr dptr) { return cistern::shim::free(dptr); }

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { return memory_info(free, total); }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) { return total_memory(bytes, dev); }

// --- other kinds of memory ---

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  const bool answerable = dptr != nullptr && pPitch != nullptr;  // else the driver refuses
  const CUresult result = charging() && answerable
                              ? allocate_pitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes)
                              : ask_for_memory(driver().cuMemAllocPitch_v2, dptr, pPitch,
                                               WidthInBytes, Height, ElementSizeBytes);
  if (result == CUDA_SUCCESS && answerable && fill_on()) fill_linear(*dptr, *pPitch * Height);
  return result;
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  const CUresult result = allocate_managed(dptr, bytesize, flags);
  if (result == CUDA_SUCCESS && fill_on()) note_unfilled();
  return result;
}
