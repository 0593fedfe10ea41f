// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/fill.h"

#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/visit.h"
#include "shim/order/device.h"
#include "shim/order/streams/events.h"
#include "shim/order/streams/streams.h"
#include "shim/order/suspicion.h"

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

}  // namespace cistern::shim
