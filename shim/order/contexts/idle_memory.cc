// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/idle_memory.h"

#include "allocator/base/os.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_client.h"
#include "shim/order/contexts/visit.h"
#include "shim/order/device.h"

namespace cistern::shim {
namespace {

// How long the work of a context is waited for, before what waits for it can be released.
constexpr uint64_t kPatienceNs = 200'000'000;

// The memory of a context that ends goes back to the driver with it. Waits until the driver has
// decided whether the context ends; false if that takes longer than 2 s.
bool closed(const Context& context, CUcontext handle) {
  return alloc::os::wait_until(
      [&] { return context.handle.load() != handle || !context.source.closing(); }, 2'000'000'000);
}

}  // namespace

PooledBytes pooled_bytes_of(CUdevice device) {
  PooledBytes bytes{device_state(device).ledger.scratch_bytes.get(), 0};
  for_each_context([&](Context& context) {
    const Visit visit(context);
    // If the context is ending, the driver may have its memory back already.
    if (!visit.open() || context.device != device) return;
    bytes.idle += context.pool.returnable_bytes();
    bytes.live += context.pool.usage().live;
  });
  return bytes;
}

void about_to_tell_free(CUdevice device) {
  for (const ContextClient& client : context_clients()) {
    if (client.before_free_is_told != nullptr) client.before_free_is_told(device);
  }
}

bool release_idle_memory_of_clients(CUdevice device) {
  bool any = false;
  for (const ContextClient& client : context_clients()) {
    if (client.release_idle_memory != nullptr) any |= client.release_idle_memory(device);
  }
  return any;
}

void release_clean_memory_of(CUdevice device) {
  for_each_context([=](Context& context) {
    const Visit visit(context);
    if (visit.open() && context.device == device) context.pool.release_clean();
  });
}

bool release_idle_memory_of(CUdevice device, const Context* except) {
  bool any = release_idle_memory_of_clients(device);
  for_each_context([&](Context& context) {
    if (&context == except) return;
    CUcontext ending = nullptr;
    {
      const Visit visit(context);
      if (context.device != device) return;
      if (visit.open()) any |= context.pool.release_returnable(kPatienceNs);
      if (visit.closing()) ending = visit.handle();
    }
    if (ending != nullptr) any |= closed(context, ending);
  });
  return any;
}

}  // namespace cistern::shim
