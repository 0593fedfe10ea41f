// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context.h"

#include "shim/entry/driver.h"
#include "shim/order/device.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_registry.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

constexpr int kMaxGreenContexts = 256;
constinit std::atomic<CUcontext> green_contexts[kMaxGreenContexts] = {};

bool is_green(CUcontext handle) {
  for (const auto& green : green_contexts) {
    CUcontext known = green.load(std::memory_order_acquire);
    if (known == nullptr || known == handle) return known == handle;
  }
  return false;
}

// Finds the context by its handle, and remembers it for this thread.
[[gnu::noinline]] Context* look_up(CUcontext handle, uint32_t generation) {
  Context* context = context_named(handle);
  if (context == nullptr) {
    // A context that is gone may still be current to this thread: then the driver answers with an
    // error.
    CUdevice device;
    const bool lives = driver().cuCtxGetDevice(&device) == CUDA_SUCCESS;
    if (lives && !is_green(handle)) distrust("context");
    return nullptr;
  }
  this_thread.remember(handle, context, generation);
  return context;
}

}  // namespace

Context* current_context() {
  CUcontext handle = nullptr;
  if (driver().cuCtxGetCurrent(&handle) != CUDA_SUCCESS || handle == nullptr) return nullptr;
  const Thread& t = this_thread;
  const uint32_t generation = context_generation();
  if (t.handle == handle && t.generation == generation) [[likely]]
    return t.context;
  return look_up(handle, generation);
}

Context* context_named(CUcontext handle) {
  return static_cast<Context*>(find_context_slot(handle));
}

Context* context_of(const alloc::Chunk* chunk) { return context_at(chunk->at().owner()); }

CUdevice current_device() {
  if (const Context* context = current_context()) return context->device;
  CUdevice device;
  return driver().cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : kNoDevice;
}

CUdevice device_of(CUcontext handle) {
  const Context* context = handle == nullptr ? nullptr : context_named(handle);
  return context == nullptr ? kNoDevice : context->device.load();
}

void green_context_appeared(CUcontext handle) {
  if (is_green(handle)) return;
  streams().give_up();
  for (auto& green : green_contexts) {
    CUcontext expected = nullptr;
    if (green.compare_exchange_strong(expected, handle)) return;
  }
}

}  // namespace cistern::shim
