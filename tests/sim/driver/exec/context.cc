// SPDX-License-Identifier: Apache-2.0
#include "exec/context.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "exec/capture.h"
#include "exec/engine.h"
#include "memory/device.h"
#include "memory/host_memory.h"
#include "memory/pool.h"
#include "watch/oracle.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

constinit std::atomic<uint64_t> g_next_context_id{1};
constinit std::atomic<uint64_t> g_next_thread{1};
constinit std::atomic<int> g_alive{0};

struct Registry {
  std::mutex mutex;
  std::unordered_set<Context*> contexts;
  pthread_key_t thread_end;
};

void forget_thread(void* number);

Registry& registry() {
  static Registry& all = *[] {
    auto* made = new Registry;
    pthread_key_create(&made->thread_end, forget_thread);
    return made;
  }();
  return all;
}

// Streams of a thread that has ended finish their work and go.
void forget_thread(void* number) {
  const auto thread = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(number));
  std::vector<StreamRef> streams;  // dropped after the locks
  Registry& all = registry();
  const std::scoped_lock locks(all.mutex, exec_mutex());
  for (Context* context : all.contexts) {
    const auto found = context->per_thread.find(thread);
    if (found == context->per_thread.end()) continue;
    context->leftovers.add(found->second->tail);
    streams.push_back(found->second);
    context->per_thread.erase(found);
  }
}

}  // namespace

Context::Context(Device& device, Role role) : device_(device), role_(role) {
  const std::lock_guard lock(registry().mutex);
  registry().contexts.insert(this);
}

void Context::revive() {
  const std::lock_guard lock(exec_mutex());
  id_ = g_next_context_id.fetch_add(1);
  dead = CUDA_SUCCESS;
  legacy = std::make_shared<Stream>(*this, Stream::Role::kLegacy, 0, 0);
  closed = false;
  alive_ = true;
  g_alive.fetch_add(1);
}

void Context::end() {
  {
    const std::lock_guard lock(exec_mutex());
    closed = true;
  }
  wait_for_memory_of(*this);
  {
    const std::lock_guard lock(exec_mutex());
    alive_ = false;
    g_alive.fetch_sub(1);
    for_each_stream([](const StreamRef& stream) { drop_capture(*stream); });
    created.clear();
    per_thread.clear();
    barrier = {};
    leftovers = {};
    free_leftovers = {};
    peers.clear();
    touched_by_others = {};
    if (judging()) forget_memory_of(*this);
    late_frees.clear();
    limits.clear();
  }
  give_back_all(*this);
  device_.release_all(*this);
  free_host_of(*this);
  pools_after_wait();
}

Order Context::unfinished() {
  leftovers.prune();
  free_leftovers.prune();
  barrier.prune();
  Order all = leftovers;
  all.add(free_leftovers);
  all.add(barrier);
  for_each_stream([&](const StreamRef& stream) { all.add(stream->tail); });
  return all;
}

void wait_for_context(Context& context) {
  if (everything_done() && !keeping_clocks()) return;
  Order pending;
  {
    const std::lock_guard lock(exec_mutex());
    pending = context.unfinished();
  }
  wait_for(std::move(pending));
}

void wait_for_memory_of(Context& context) {
  if (everything_done() && !keeping_clocks()) return;
  Order pending;
  {
    const std::lock_guard lock(exec_mutex());
    pending = context.unfinished();
    context.touched_by_others.prune();
    pending.add(context.touched_by_others);
  }
  wait_for(std::move(pending));
}

std::vector<Context*> living_contexts() {
  std::vector<Context*> all;
  const std::lock_guard lock(registry().mutex);
  std::copy_if(registry().contexts.begin(), registry().contexts.end(), std::back_inserter(all),
               [](const Context* context) { return context->alive(); });
  return all;
}

bool has_context(const Device& device) {
  const std::lock_guard lock(registry().mutex);
  const auto& all = registry().contexts;
  return std::any_of(all.begin(), all.end(), [&](const Context* context) {
    return context->alive() && &context->device() == &device;
  });
}

bool several_contexts() { return g_alive.load(std::memory_order_relaxed) > 1; }

Context* create_context(Device& device, unsigned flags) {
  auto* context = new Context(device, Context::Role::kCreated);
  context->flags = flags;
  context->revive();
  return context;
}

Context* find_context(CUcontext handle) {
  auto* context = reinterpret_cast<Context*>(handle);
  const std::lock_guard lock(registry().mutex);
  return registry().contexts.contains(context) ? context : nullptr;
}

uint64_t thread_number() {
  thread_local uint64_t number = 0;
  if (number == 0) {
    number = g_next_thread.fetch_add(1);
    pthread_setspecific(registry().thread_end, reinterpret_cast<void*>(number));
  }
  return number;
}

}  // namespace simcuda
