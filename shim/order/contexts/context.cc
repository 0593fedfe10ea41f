// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context.h"

#include "shim/entry/driver.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

constexpr int kMaxGreenContexts = 256;
constinit std::atomic<CUcontext> green_contexts[kMaxGreenContexts] = {};

constinit std::atomic<int> appearing{0};  // AppearingScopes

// Finds the context by its handle, and remembers it for this thread.
[[gnu::noinline]] Context* look_up(CUcontext handle, uint32_t generation) {
  Context* context = context_named(handle);
  if (context == nullptr) unknown_context(handle, generation);
  if (context == nullptr || context->careful.load()) return nullptr;
  this_thread.remember(handle, context, generation);
  return context;
}

}  // namespace

AppearingScope::AppearingScope() { appearing.fetch_add(1); }
AppearingScope::~AppearingScope() { appearing.fetch_sub(1); }

bool contexts_appearing() { return appearing.load() != 0; }

bool is_green(CUcontext handle) {
  for (const auto& green : green_contexts) {
    CUcontext known = green.load(std::memory_order_acquire);
    if (known == nullptr || known == handle) return known == handle;
  }
  return false;
}

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

Context* working_context(CUcontext handle) {
  if (handle == nullptr) return nullptr;
  if (Context* context = context_named(handle)) return context;
  CUdevice device;
  const bool known = is_green(handle) && handle == current_handle() &&
                     driver().cuCtxGetDevice(&device) == CUDA_SUCCESS;
  CUcontext primary = known ? primary_of(device) : nullptr;
  return primary == nullptr ? nullptr : context_named(primary);
}

}  // namespace cistern::shim
