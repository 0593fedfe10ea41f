// SPDX-License-Identifier: Apache-2.0
#include "shim/context.h"

#include <new>

#include "allocator/mutex.h"
#include "allocator/os.h"
#include "shim/driver.h"
#include "shim/process.h"
#include "shim/thread.h"

namespace cistern::shim {

constinit thread_local Thread this_thread{};

namespace {

constexpr int kMaxContexts = alloc::Reclaim::kMaxContexts;

constinit alloc::Shared shared_state{};
constinit Device devices[kMaxDevices] = {};
constinit std::atomic<CUcontext> primaries[kMaxDevices] = {};

// Slots are filled under the lock and read without it. A Context's memory is never given back.
constinit alloc::Mutex mutex;
constinit std::atomic<Context*> slots[kMaxContexts] = {};
constinit std::atomic<int> slots_used{0};
constinit std::atomic<uint32_t> generation{1};  // moves when a handle changes its meaning

Context* find(CUcontext handle) {
  for (int i = 0, n = context_slots(); i < n; ++i) {
    Context* context = context_at(i);
    if (context->handle.load(std::memory_order_acquire) == handle) return context;
  }
  return nullptr;
}

// A slot no context uses, or nullptr.
Context* free_slot(int* number) {
  const int used = context_slots();
  for (int i = 0; i < used; ++i) {
    *number = i;
    if (context_at(i)->handle.load(std::memory_order_relaxed) == nullptr) return context_at(i);
  }
  if (used == kMaxContexts) return nullptr;
  auto* context = static_cast<Context*>(alloc::os::map(sizeof(Context), 4096));
  if (context == nullptr) return nullptr;
  new (context) Context{};
  slots[used].store(context, std::memory_order_release);
  slots_used.store(used + 1, std::memory_order_release);
  *number = used;
  return context;
}

Context* create(CUcontext handle, CUdevice device, uint64_t total) {
  alloc::LockGuard guard(mutex);
  if (Context* other = find(handle)) return other;
  int number;
  Context* context = free_slot(&number);
  if (context == nullptr) return nullptr;
  Device& d = device_state(device);
  if (!d.used.exchange(true)) {
    d.total.store(total, std::memory_order_relaxed);
    const config::Cap cap = policy().cap_for(static_cast<unsigned>(device));
    if (cap.kind != config::CapKind::kNone) d.cap.set_limit(cap.bytes_of(total));
  }
  context->device = device;
  context->source.init(handle);
  context->pool.init(&shared_state, &context->source, &d.ledger, &d.cap,
                     static_cast<uint32_t>(number));
  context->timeline = shared_state.reclaim.join(&context->source);
  if (context->timeline == nullptr) return nullptr;
  context->handle.store(handle, std::memory_order_release);
  return context;
}

Context* find_or_create(CUcontext handle) {
  if (Context* context = find(handle)) return context;
  CUdevice device;
  size_t total;
  const Driver& d = driver();
  if (d.cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 || device >= kMaxDevices ||
      d.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) {
    return nullptr;
  }
  return create(handle, device, total);
}

}  // namespace

alloc::Shared& shared() { return shared_state; }

Device& device_state(CUdevice device) { return devices[device]; }

int context_slots() { return slots_used.load(std::memory_order_acquire); }

Context* context_at(int slot) { return slots[slot].load(std::memory_order_acquire); }

Context* context_of(const alloc::Chunk* chunk) {
  return context_at(static_cast<int>(chunk->owner.load(std::memory_order_relaxed)));
}

Context* current_context() {
  CUcontext handle = nullptr;
  if (driver().cuCtxGetCurrent(&handle) != CUDA_SUCCESS || handle == nullptr) return nullptr;
  Thread& t = this_thread;
  const uint32_t now = generation.load(std::memory_order_acquire);
  if (t.handle == handle && t.generation == now) [[likely]]
    return t.context;
  Context* context = find_or_create(handle);
  if (context != nullptr) t.remember(handle, context, now);
  return context;
}

void context_appeared(CUcontext handle, CUdevice device) {
  size_t total;
  if (handle == nullptr || device < 0 || device >= kMaxDevices || find(handle) != nullptr ||
      driver().cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) {
    return;
  }
  create(handle, device, total);
}

Context* closing(CUcontext handle) {
  Context* context = handle == nullptr ? nullptr : find(handle);
  if (context == nullptr) return nullptr;
  context->source.set_closing(true);
  shared_state.reclaim.settle();  // a call on the context's events that is under way ends first
  return context;
}

void gone(Context* context) {
  if (context == nullptr) return;
  alloc::LockGuard guard(mutex);
  if (context->handle.load(std::memory_order_relaxed) == nullptr) return;
  generation.fetch_add(1, std::memory_order_acq_rel);
  shared_state.reclaim.leave(context->timeline);
  Device& d = device_state(context->device);
  d.past_allocations.add(context->pool.allocations());
  d.past_frees.add(context->pool.frees());
  context->pool.drop();
  context->handle.store(nullptr, std::memory_order_release);
}

void stays(Context* context) {
  if (context != nullptr) context->source.set_closing(false);
}

CUcontext primary_of(CUdevice device) {
  return device < 0 || device >= kMaxDevices ? nullptr
                                             : primaries[device].load(std::memory_order_acquire);
}

void primary_is(CUdevice device, CUcontext handle) {
  if (device >= 0 && device < kMaxDevices) primaries[device].store(handle);
}

SynchroniseScope::SynchroniseScope(CUcontext handle)
    : context_(handle != nullptr ? find(handle) : current_context()) {
  if (context_ != nullptr) ticket_ = shared_state.reclaim.close();
}

void SynchroniseScope::succeeded() {
  if (context_ != nullptr) shared_state.reclaim.passed(context_->timeline, ticket_);
}

void reset_contexts_after_fork() {
  mutex.reset();
  shared_state.index.reset_after_fork();
  shared_state.chunks.reset_after_fork();
  shared_state.slabs.reset_after_fork();
  for (int i = 0; i < context_slots(); ++i) context_at(i)->pool.reset_after_fork();
}

}  // namespace cistern::shim
