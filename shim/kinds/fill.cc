// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/fill.h"

#include "shim/entry/driver.h"
#include "shim/order/capture_gate.h"
#include "shim/order/context.h"
#include "shim/order/events.h"
#include "shim/order/suspicion.h"

namespace cistern::shim {

constinit int fill_value = -1;

namespace {

constinit alloc::FillMode mode = alloc::FillMode::off;

// The context of a stream, as far as the driver names it.
CUcontext context_of_stream(CUstream stream) {
  const bool of_thread =
      stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  CUcontext context = nullptr;
  const auto ask = driver().cuStreamGetCtx;
  const bool known = !of_thread && ask != nullptr && ask(stream, &context) == CUDA_SUCCESS;
  return known && context != nullptr ? context : current_handle();
}

}  // namespace

void open_fill(const config::Policy& policy) {
  fill_value = policy.fill_byte();
  if (fill_value < 0) return;
  const bool separate = policy.atomic_clean_policy.value == config::CleanPolicy::kSeparate;
  mode = separate ? alloc::FillMode::separate : alloc::FillMode::gathered;
}

alloc::FillMode fill_mode() { return mode; }

// As long as the thread is a visitor, its context does not end.
void fill_linear(CUdeviceptr address, size_t bytes) {
  Context* context = current_context();
  if (context == nullptr) return note_unfilled();
  context->visitors.fetch_add(1);
  if (context->handle.load() == current_handle()) {
    alloc::Filler filler;
    filler.init(&context->source, &device_state(context->device).ledger, mode);
    filler.fill(address, bytes);
  }
  context->visitors.fetch_sub(1);
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

}  // namespace cistern::shim
