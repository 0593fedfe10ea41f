// SPDX-License-Identifier: Apache-2.0
#include "exec/stream.h"

#include <algorithm>
#include <mutex>

#include "base/clock.h"
#include "base/handles.h"
#include "exec/capture.h"
#include "exec/context.h"
#include "exec/current.h"
#include "exec/engine.h"
#include "memory/allocation.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

HandleTable<CUstream, Stream>& streams() {
  static auto& all = *new HandleTable<CUstream, Stream>;
  return all;
}

constinit std::atomic<uint64_t> g_next_stream_id{1};

// What new work in this stream comes after, besides what it was given. Caller holds exec_mutex().
void add_implicit_order(const Stream& stream, Order& after) {
  Context& context = stream.context;
  after.add(stream.tail);
  context.barrier.prune();
  after.add(context.barrier);
  if (stream.blocking()) after.add(context.legacy->tail);
  if (stream.role != Stream::Role::kLegacy) return;
  context.leftovers.prune();
  after.add(context.leftovers);
  context.for_each_stream([&](const StreamRef& other) {
    if (other->blocking()) after.add(other->tail);
  });
}

StreamRef per_thread_stream(Context& context) {
  const uint64_t thread = thread_number();
  const std::lock_guard lock(exec_mutex());
  StreamRef& stream = context.per_thread[thread];
  if (stream == nullptr) {
    stream = std::make_shared<Stream>(context, Stream::Role::kPerThread, 0, 0);
  }
  return stream;
}

StreamRef legacy_stream(Context& context) {
  const std::lock_guard lock(exec_mutex());
  return context.legacy;
}

// Whether the context that owns memory waits for this work of another one before it frees: for
// copies, and for kernels that reach another device. A kernel of another context on the same device
// has no right to the memory, unless it is pinned. Caller holds exec_mutex().
bool counts_for_owner(const Stream& stream, const Work& work, const Allocation& memory) {
  const Context& owner = *memory.context;
  if (&owner == &stream.context) return false;
  return work.kernel == nullptr || memory.kind == MemoryKind::kPinned ||
         &owner.device() != &stream.context.device();
}

void tell_owners(const Stream& stream, const Work& work) {
  for (const Access& access : work.accesses) {
    const auto found = find_allocation(access.address);
    const bool waited_for =
        found && (found->kind == MemoryKind::kDevice || found->kind == MemoryKind::kPinned);
    if (!waited_for || !found->context->alive()) continue;
    if (!counts_for_owner(stream, work, *found)) continue;
    found->context->touched_by_others.prune();
    found->context->touched_by_others.add(work.done);
  }
}

// Events that are recorded or waited for are no work. Caller holds exec_mutex().
void note_kernel(Stream& stream, const Work& work) {
  if (work.kernel != nullptr) {
    stream.before_kernel = work.after;
  } else if (work.run) {
    stream.before_kernel.reset();
  }
}

}  // namespace

Stream::Stream(Context& owner, Role which, unsigned stream_flags, int stream_priority)
    : context(owner),
      role(which),
      flags(stream_flags),
      priority(stream_priority),
      id(g_next_stream_id.fetch_add(1)),
      life(owner.id()) {}

StreamRef resolve_stream(CUstream handle, DefaultStream kind) {
  Context* context = current_context();
  if (handle == CU_STREAM_LEGACY || (handle == nullptr && kind == DefaultStream::kLegacy)) {
    return legacy_stream(*context);
  }
  if (handle == CU_STREAM_PER_THREAD || handle == nullptr) return per_thread_stream(*context);
  return streams().find(handle);
}

CUresult create_stream(Call call, Context& context, unsigned flags, int priority,
                       CUstream* handle) {
  auto stream = std::make_shared<Stream>(context, Stream::Role::kCreated, flags, priority);
  if (const CUresult code = take_for(call, context, &stream->taken); code != CUDA_SUCCESS) {
    return code;
  }
  stream->handle = streams().insert(stream);
  const std::lock_guard lock(exec_mutex());
  context.created.push_back(stream);
  *handle = stream->handle;
  return CUDA_SUCCESS;
}

// Returns at once: work in flight goes on, and still counts for its context.
CUresult destroy_stream(CUstream handle) {
  const StreamRef stream = streams().remove(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->taken != nullptr) stream->taken->give_back();
  const std::lock_guard lock(exec_mutex());
  drop_capture(*stream);
  Context& context = stream->context;
  std::erase(context.created, stream);
  Order& leftovers = stream->blocking() ? context.leftovers : context.free_leftovers;
  leftovers.prune();
  leftovers.add(stream->tail);
  return CUDA_SUCCESS;
}

CUresult submit(const StreamRef& stream, Work work, Wait wait, MarkerRef* marker) {
  std::unique_lock lock(exec_mutex());
  await_room(*stream, lock);
  // Another thread ends the context.
  if (stream->context.closed || stream->life != stream->context.id()) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (any_capture()) {
    if (stream->capture) return record(*stream, std::move(work), wait);
    if (const CUresult code = check_implicit_capture(*stream); code != CUDA_SUCCESS) return code;
  }
  add_implicit_order(*stream, work.after);
  work.after.prune();
  note_kernel(*stream, work);
  work.given_ns = now_ns();
  work.done = std::make_shared<Marker>();
  if (keeping_clocks() && !watch_submit(*stream, work)) work.run = [] {};
  if (several_contexts()) tell_owners(*stream, work);
  const MarkerRef done = work.done;
  stream->tail = done;
  if (marker != nullptr) *marker = done;
  const bool ready = work.after.pending.empty() && stream->queue.empty();
  if (ready && !work.run) {
    reach_now(*done);
  } else if (ready && wait == Wait::kYes) {
    begin_here();
    lock.unlock();
    run_here(work);
    wait_for(done);
  } else {
    queue_work(stream, std::move(work));
    lock.unlock();
    if (wait == Wait::kYes) wait_for(done);
  }
  return CUDA_SUCCESS;
}

CUresult stream_order(const StreamRef& stream, Order* order) {
  const std::lock_guard lock(exec_mutex());
  if (any_capture()) {
    if (stream->capture) return invalidate(*stream->capture);
    if (const CUresult code = check_implicit_capture(*stream); code != CUDA_SUCCESS) return code;
  }
  order->add(stream->tail);
  if (stream->role == Stream::Role::kLegacy) add_implicit_order(*stream, *order);
  return CUDA_SUCCESS;
}

VectorClock known_to(const StreamRef& stream) {
  const std::lock_guard lock(exec_mutex());
  Order after;
  add_implicit_order(*stream, after);
  return std::move(after.clock);
}

VectorClock promised_to(const Stream& stream) {
  Order after;
  add_implicit_order(stream, after);
  return std::move(after.promised);
}

}  // namespace simcuda
