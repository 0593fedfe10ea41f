// SPDX-License-Identifier: Apache-2.0
#include "shim/order/context.h"

#include <new>

#include "allocator/base/mutex.h"
#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/fill.h"
#include "shim/kinds/scratch.h"
#include "shim/order/capture_gate.h"
#include "shim/order/graphs.h"
#include "shim/order/streams.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/process/thread.h"

namespace cistern::shim {

namespace {

constexpr int kMaxContexts = alloc::Reclaim::kMaxContexts;

constinit alloc::Shared shared_state{};
constinit std::atomic<CUcontext> primaries[kMaxDevices] = {};

// Slots are filled under the lock and read without it. A Context's memory is never given back.
constinit alloc::Mutex mutex;
constinit std::atomic<Context*> slots[kMaxContexts] = {};
constinit std::atomic<int> slots_used{0};
constinit std::atomic<uint32_t> generation{1};  // moves when a handle changes its meaning

constexpr int kMaxGreenContexts = 256;
constinit std::atomic<CUcontext> green_contexts[kMaxGreenContexts] = {};

bool is_green(CUcontext handle) {
  for (const auto& green : green_contexts) {
    CUcontext known = green.load(std::memory_order_acquire);
    if (known == nullptr || known == handle) return known == handle;
  }
  return false;
}

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

uint64_t id_of(CUcontext handle) {
  unsigned long long id;
  const auto ask = driver().cuCtxGetId;
  return ask != nullptr && ask(handle, &id) == CUDA_SUCCESS ? id : 0;
}

Context* create(CUcontext handle, uint64_t id, CUdevice device) {
  alloc::LockGuard guard(mutex);
  if (Context* other = find(handle)) return other;
  int number;
  if (context_slots() == 0) shared_state.idle = alloc::idle_release(policy());
  Context* context = free_slot(&number);
  if (context == nullptr) {
    shared_state.reclaim.freeze();
    return nullptr;
  }
  Device& d = device_state(device);
  if (!d.used.load(std::memory_order_relaxed)) {
    d.garbage.init(alloc::garbage_rules(policy()), &shared_state.reclaim);
    d.used.store(true, std::memory_order_release);
  }
  context->device = device;
  context->id.store(id, std::memory_order_relaxed);
  context->suspicion.store(0, std::memory_order_relaxed);
  context->slot = static_cast<uint32_t>(number);
  context->attached.store(0, std::memory_order_relaxed);
  context->source.init(handle, device);
  const alloc::DeviceParts parts{&d.ledger, &d.cap, d.garbage.on() ? &d.garbage : nullptr,
                                 fill_mode()};
  const alloc::ChunkSizes sizes = sizes_on(d);
  d.strategy.store(sizes.kind, std::memory_order_relaxed);
  context->pool.init(&shared_state, &context->source, parts, static_cast<uint32_t>(number), sizes);
  context->timeline = shared_state.reclaim.join(&context->source);
  if (context->timeline == nullptr) return nullptr;
  context->handle.store(handle, std::memory_order_release);
  return context;
}

// The context with this id is gone; the slot may be another one's by now.
void gone(Context* context, uint64_t id) {
  alloc::LockGuard guard(mutex);
  if (context->id.load(std::memory_order_relaxed) != id) return;
  // First of all nobody finds it any more. The slot is used again only under the lock.
  CUcontext handle = context->handle.exchange(nullptr);
  if (handle == nullptr) return;
  generation.fetch_add(1, std::memory_order_acq_rel);
  shared_state.reclaim.leave(context->timeline);
  Device& d = device_state(context->device);
  d.past_allocations.add(context->pool.allocations());
  d.past_frees.add(context->pool.frees());
  context->pool.forget_all();
  if (scratch_on()) scratch_drop(*context);
  capture_gate().context_gone(handle);
  graphs_of_context_gone(handle);
  streams().context_gone(handle);
  context_charges_gone(handle);
}

// What the pool of a dying context keeps comes back with the context: waits until the driver has
// decided, but no longer than the work of the context may reasonably take. False if it takes
// longer.
bool closed(const Context& context, CUcontext handle) {
  return alloc::os::wait_until(
      [&] { return context.handle.load() != handle || !context.source.closing(); }, 2'000'000'000);
}

}  // namespace

void distrust(const char* what) {
  if (shared_state.reclaim.frozen()) return;
  shared_state.reclaim.freeze();
  log(config::LogLevel::kWarn,
      "a CUDA %s was created out of our sight; freed memory is only reused after the driver had "
      "it back; cistern doctor tells which parts of the program are not covered",
      what);
}

alloc::Shared& shared() { return shared_state; }

CUcontext current_handle() {
  CUcontext handle = nullptr;
  return driver().cuCtxGetCurrent(&handle) == CUDA_SUCCESS ? handle : nullptr;
}

CUdevice current_device() {
  if (const Context* context = current_context()) return context->device;
  CUdevice device;
  return driver().cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : kNoDevice;
}

CUdevice device_of(CUcontext handle) {
  const Context* context = handle == nullptr ? nullptr : find(handle);
  return context == nullptr ? kNoDevice : context->device.load();
}

int context_slots() { return slots_used.load(std::memory_order_acquire); }

Context* context_at(int slot) { return slots[slot].load(std::memory_order_acquire); }

Context* context_named(CUcontext handle) { return find(handle); }

Context* context_of(const alloc::Chunk* chunk) { return context_at(chunk->at().owner()); }

Context* current_context() {
  CUcontext handle = nullptr;
  if (driver().cuCtxGetCurrent(&handle) != CUDA_SUCCESS || handle == nullptr) return nullptr;
  Thread& t = this_thread;
  const uint32_t now = generation.load(std::memory_order_acquire);
  if (t.handle == handle && t.generation == now) [[likely]]
    return t.context;
  Context* context = find(handle);
  if (context == nullptr) {
    // One that is gone may still be current here; the driver says so.
    CUdevice device;
    const bool lives = driver().cuCtxGetDevice(&device) == CUDA_SUCCESS;
    if (lives && !is_green(handle)) distrust("context");
    return nullptr;
  }
  t.remember(handle, context, now);
  return context;
}

void context_appeared(CUcontext handle, CUdevice device) {
  const uint64_t id = id_of(handle);
  if (Context* known = find(handle)) {
    const uint64_t known_id = known->id.load(std::memory_order_relaxed);
    if (id == known_id || id == 0 || known_id == 0) return;
    // The thread that ended the last context of this handle has not come to say so yet.
    gone(known, known_id);
  }
  if (known_device(device) == nullptr || create(handle, id, device) == nullptr) {
    shared_state.reclaim.freeze();
  }
}

void green_context_appeared(CUcontext handle) {
  if (is_green(handle)) return;
  streams().give_up();
  for (auto& green : green_contexts) {
    CUcontext expected = nullptr;
    if (green.compare_exchange_strong(expected, handle)) return;
  }
}

void context_attached(CUcontext handle) {
  if (Context* context = find(handle)) context->attached.fetch_add(1);
}

bool context_detached(CUcontext handle) {
  Context* context = find(handle);
  if (context == nullptr || context->attached.load() == 0) return false;
  context->attached.fetch_sub(1);
  return true;
}

uint64_t idle_memory_of(CUdevice device) {
  uint64_t bytes = scratch_on() ? scratch_cached_bytes(device) : 0;
  for_each_context([&](Context& context) {
    // What a context that is ending keeps may be the driver's again already.
    const bool counts = context.device == device && !context.source.closing();
    if (counts) bytes += context.pool.returnable_bytes();
  });
  return bytes;
}

bool return_idle_memory_of(CUdevice device, const Context* except) {
  bool any = scratch_on() && scratch_relieve(device);
  for_each_context([&](Context& context) {
    if (&context == except) return;
    context.visitors.fetch_add(1);
    // The rest of a slot may only be read once there is a context in it.
    CUcontext handle = context.handle.load();
    const bool ours = handle != nullptr && context.device == device;
    const bool closing = ours && context.source.closing();
    if (ours && !closing) any |= context.pool.release_everything();
    context.visitors.fetch_sub(1);
    if (closing) any |= closed(context, handle);
  });
  return any;
}

constinit std::atomic<int> contexts_ending{0};

EndingScope::EndingScope(CUcontext handle) : context_(handle == nullptr ? nullptr : find(handle)) {
  if (context_ == nullptr) return;
  contexts_ending.fetch_add(1);
  id_ = context_->id.load(std::memory_order_relaxed);
  if (scratch_on()) scratch_close(*context_);
  context_->source.begin_closing();
  shared_state.reclaim.settle();  // a call on the context's events that is under way ends first
  // A thread of another context may be returning what this one keeps, or one may be filling.
  while (context_->visitors.load() != 0 || context_->source.filling()) alloc::os::sleep_ns(1000);
}

EndingScope::~EndingScope() {
  if (context_ == nullptr) return;
  context_->source.end_closing();
  contexts_ending.fetch_sub(1);
  if (scratch_on()) scratch_reopen(*context_);
}

void EndingScope::ended() {
  if (context_ != nullptr) gone(context_, id_);
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
  if (context_ == nullptr) return;
  if (scratch_on()) scratch_empty_context(*context_);
  losses_ = streams().losses();
  ticket_ = shared_state.reclaim.close();
}

void SynchroniseScope::succeeded() {
  if (context_ == nullptr) return;
  context_->source.synchronised(losses_);
  shared_state.reclaim.passed(context_->timeline, ticket_);
  context_->pool.synchronised(ticket_);
  if (scratch_on()) scratch_synchronised(*context_, ticket_);
  // The device has just been waited for: the driver's free will not make the program wait again.
  if (context_ == current_context()) context_->pool.release_excess();
}

void reset_contexts_after_fork() {
  mutex.reset();
  shared_state.reset_after_fork();
  for (int i = 0; i < kMaxDevices; ++i) device_state(i).garbage.reset_after_fork();
  for (int i = 0; i < context_slots(); ++i) context_at(i)->pool.reset_after_fork();
  reset_scratch_after_fork();
}

}  // namespace cistern::shim
