// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/unpooled.h"

#include "shim/entry/driver.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/imported.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/pooled/memory.h"
#include "shim/pooled/out_of_memory.h"

namespace cistern::shim {

void fill_linear(CUdeviceptr address, size_t bytes) {
  Context* context = current_context();
  if (context == nullptr) return note_unfilled();
  const Visit visit(*context);
  alloc::Ledger& ledger = device_state(context->device).ledger;
  if (!visit.open() || visit.handle() != current_handle()) return ledger.fills_failed.add();
  alloc::Filler filler;
  filler.init(&context->source, &ledger, alloc::fill_mode(policy()));
  filler.fill(address, bytes);
}

void fill_ordered(Memset memset, CUdeviceptr address, size_t bytes, CUstream stream,
                  const PoolHome& home) {
  if (home.device == kNoDevice || memset == nullptr) return note_unfilled();
  alloc::Ledger& ledger = device_state(home.device).ledger;
  const GatePass pass;
  if (!pass) return ledger.fills_skipped.add();
  CUcontext context = context_of_stream(stream);
  const ContextScope scope(context);
  if (!scope || noted(memset(address, fill_byte(), bytes, stream), context) != CUDA_SUCCESS) {
    return ledger.fills_failed.add();
  }
  ledger.fills.add();
  ledger.fill_bytes.add(bytes);
}

void note_unfilled() {
  const CUdevice device = current_device();
  if (device != kNoDevice) device_state(device).ledger.fills_of_other_kind.add();
}

namespace {

// Frees memory for which the cap has no room. If the driver refuses the free, the memory stays
// counted, with the charge made so far.
void give_back(Charge& charge, CUdeviceptr address) {
  if (noted(driver().cuMemFree_v2(address)) != CUDA_SUCCESS) charge.hand_over();
}

CUresult allocate_charged(CUdeviceptr* out, size_t bytes) {
  if (!charging() || out == nullptr) return noted(driver().cuMemAlloc_v2(out, bytes));
  Charge charge(MemoryKind::direct, current_device(), bytes);
  if (charge.refused()) return no_room();
  const CUdeviceptr before = *out;
  const CUresult result = charge.ask([&] { return noted(driver().cuMemAlloc_v2(out, bytes)); });
  if (result != CUDA_SUCCESS) return result;
  if (charge.place(*out)) {
    charge.keep(*out, current_handle());
    return result;
  }
  give_back(charge, *out);
  *out = before;
  return no_room();
}

constexpr bool valid_element(unsigned bytes) { return bytes == 4 || bytes == 8 || bytes == 16; }

// The driver chooses the pitch. Before the call, the pitch that drivers usually choose is charged;
// Charge::resize() corrects that afterwards.
constexpr size_t kUsualPitch = 512;

uint64_t usual_bytes(size_t width, size_t height) {
  const uint64_t row = (uint64_t{width} + kUsualPitch - 1) / kUsualPitch * kUsualPitch;
  uint64_t bytes;
  return __builtin_mul_overflow(row, uint64_t{height}, &bytes) ? UINT64_MAX : bytes;
}

CUresult allocate_pitch_charged(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
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
  if (charge.resize(*pitch * height) && charge.place(*out)) {
    charge.keep(*out, current_handle());
    return result;
  }
  give_back(charge, *out);
  *out = address_before;
  *pitch = pitch_before;
  return no_room();
}

CUresult allocate_managed_charged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  const auto real = driver().cuMemAllocManaged;
  if (!charging() || out == nullptr) return ask_for_memory(real, out, bytes, flags);
  Charge charge(MemoryKind::managed, current_device(), bytes);
  const CUresult result = charge.ask([&] { return ask(real, out, bytes, flags); });
  if (result == CUDA_SUCCESS) charge.keep(*out, current_handle());
  return result;
}

}  // namespace

CUresult allocate_linear(CUdeviceptr* out, size_t bytes) {
  const CUresult result = allocate_charged(out, bytes);
  if (result == CUDA_SUCCESS && fill_on()) note_unfilled();
  return result;
}

// The address may be of stream-ordered memory, which cuMemFree frees without a stream. For a block
// that the scratch cache holds, the result is given here: the driver would really free the block.
CUresult free_linear(CUdeviceptr address) {
  const auto free_it = [=] {
    return refunding(address, [=] { return noted(driver().cuMemFree_v2(address)); });
  };
  if (!scratch_on()) return free_it();
  const ScratchFree free = scratch_free({0, nullptr, CUDA_SUCCESS}, address);
  if (free.answered) {
    const CUresult result = refusal_here();
    return result != CUDA_SUCCESS ? result : free.code;
  }
  const CUresult result = free_it();
  scratch_freed(free, result);
  return result;
}

CUresult allocate_pitched(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                          unsigned element_bytes) {
  const bool answerable = out != nullptr && pitch != nullptr;  // else the driver refuses
  const CUresult result =
      charging() && answerable
          ? allocate_pitch_charged(out, pitch, width, height, element_bytes)
          : ask_for_memory(driver().cuMemAllocPitch_v2, out, pitch, width, height, element_bytes);
  if (result == CUDA_SUCCESS && answerable && fill_on()) fill_linear(*out, *pitch * height);
  return result;
}

CUresult allocate_managed(CUdeviceptr* out, size_t bytes, unsigned flags) {
  const CUresult result = allocate_managed_charged(out, bytes, flags);
  if (result == CUDA_SUCCESS && fill_on()) note_unfilled();
  return result;
}

CUresult linear_range(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  uint64_t start, bytes, whole;
  if (find_imported(address, &start, &bytes)) return imported_range(base, size, start, bytes);
  const ScratchFound found =
      scratch_on() ? scratch_find(address, &start, &bytes, &whole) : ScratchFound::foreign;
  if (found == ScratchFound::foreign) return driver().cuMemGetAddressRange_v2(base, size, address);
  if (found == ScratchFound::not_live) {
    return ask(driver().cuMemGetAddressRange_v2, base, size, kNowhere);
  }
  if (base != nullptr) *base = start;
  if (size != nullptr) *size = bytes;
  return CUDA_SUCCESS;
}

}  // namespace cistern::shim
