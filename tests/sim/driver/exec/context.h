// SPDX-License-Identifier: Apache-2.0
//
// A context: owner of streams and of memory. Objects are never destroyed, so that a stale handle,
// also one still current in some thread, is recognised instead of followed. Any thread.
#pragma once

#include <atomic>
#include <map>
#include <set>
#include <vector>

#include "base/cuda.h"
#include "exec/stream.h"
#include "memory/taken.h"

namespace simcuda {

class Device;

class Context {
 public:
  enum class Role : uint8_t { kPrimary, kCreated };

  Context(Device& device, Role role);

  Device& device() const { return device_; }
  bool primary() const { return role_ == Role::kPrimary; }
  bool alive() const { return alive_.load(std::memory_order_acquire); }
  uint64_t id() const { return id_.load(std::memory_order_relaxed); }
  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }

  // A primary context comes to life again at each first retain.
  void revive();
  // Ends it: waits for its work, drops its streams and its memory.
  void end();

  std::atomic<unsigned> flags{0};
  // Work of the context died: what its calls answer until it ends (base/misfortune.h).
  std::atomic<CUresult> dead{CUDA_SUCCESS};
  // ------------------------------------------------------------------ guarded by exec_mutex()
  bool closed = true;  // it ends, and is given no work any more
  StreamRef legacy;
  std::vector<StreamRef> created;
  std::map<uint64_t, StreamRef> per_thread;  // by thread number
  Order barrier;                             // cuCtxWaitEvent: all later work comes after this
  Order leftovers;                           // work of blocking streams that are gone
  Order free_leftovers;                      // of non-blocking ones, for which none waits
  std::set<Context*> peers;
  Order touched_by_others;              // work of other contexts that reaches this one's memory
  std::vector<CUdeviceptr> late_frees;  // SIMCUDA_FREE_ASYNC=late: freed in stream order
  std::map<CUlimit, TakenRef> limits;   // what a limit that was set takes
  uint64_t locked_by = 0;               // the thread whose free waits (exec/context_lock.h)

  // Calls visit(stream) for each stream. Caller holds exec_mutex().
  template <class Visit>
  void for_each_stream(Visit&& visit) const {
    visit(legacy);
    for (const StreamRef& stream : created) visit(stream);
    for (const auto& [thread, stream] : per_thread) visit(stream);
  }

  // All work of the context so far. Caller holds exec_mutex().
  Order unfinished();

 private:
  Device& device_;
  const Role role_;
  std::atomic<bool> alive_{false};
  std::atomic<uint64_t> id_{0};
};

// Blocks until all work of the context is done.
void wait_for_context(Context& context);

// The same for cuMemFree: until no work that may touch the context's memory by
// right is under way, also not copies by other contexts, kernels that reach it by peer access, and
// their work on its pinned memory.
void wait_for_memory_of(Context& context);

// Those that are alive.
std::vector<Context*> living_contexts();

// More than one context is alive: work may concern another one.
bool several_contexts();

// Some context of the device is alive.
bool has_context(const Device& device);

// A created context; ended and forgotten by destroy_context.
Context* create_context(Device& device, unsigned flags);

// The context a handle names, alive or ended; null for one that never existed.
Context* find_context(CUcontext handle);

// Number of the calling thread, never reused; its per-thread streams end with it.
uint64_t thread_number();

}  // namespace simcuda
