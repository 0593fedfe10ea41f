// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/idle_memory.h"

#include "allocator/base/os.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_client.h"
#include "shim/order/device.h"

namespace cistern::shim {
namespace {

// The memory of a context that ends goes back to the driver with it. Waits until the driver has
// decided whether the context ends; false if that takes longer than 2 s.
bool closed(const Context& context, CUcontext handle) {
  return alloc::os::wait_until(
      [&] { return context.handle.load() != handle || !context.source.closing(); }, 2'000'000'000);
}

}  // namespace

uint64_t idle_memory_of(CUdevice device) {
  uint64_t bytes = device_state(device).ledger.scratch_bytes.get();
  for_each_context([&](Context& context) {
    // If the context is ending, the driver may have its memory back already.
    const bool counts = context.device == device && !context.source.closing();
    if (counts) bytes += context.pool.returnable_bytes();
  });
  return bytes;
}

bool release_idle_memory_of_clients(CUdevice device) {
  bool any = false;
  for (const ContextClient& client : context_clients()) {
    if (client.release_idle_memory != nullptr) any |= client.release_idle_memory(device);
  }
  return any;
}

bool release_idle_memory_of(CUdevice device, const Context* except) {
  bool any = release_idle_memory_of_clients(device);
  for_each_context([&](Context& context) {
    if (&context == except) return;
    context.visitors.fetch_add(1);
    // The rest of a slot may only be read while a context has it.
    CUcontext handle = context.handle.load();
    const bool ours = handle != nullptr && context.device == device;
    const bool closing = ours && context.source.closing();
    if (ours && !closing) any |= context.pool.release_everything();
    context.visitors.fetch_sub(1);
    if (closing) any |= closed(context, handle);
  });
  return any;
}

}  // namespace cistern::shim
