// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/memory.h"

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/nvtx/ranges.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_life.h"
#include "shim/order/shared.h"
#include "shim/pooled/free_wait.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/pooled/selection.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"
#include "shim/record/record.h"
#include "shim/sites/sites.h"

namespace cistern::shim {
namespace {

CUresult allocate_too_much(Context& context, CUdeviceptr* out, size_t bytes);
int allocate_outside_pools(Context& context, size_t bytes, bool pooled, uint64_t* address);
int allocate_with_others(Context& context, size_t bytes, uint64_t* address);
int allocate_at_last(Context& context, size_t bytes, bool pooled, uint64_t* address);
int exchange_for_unowed(Context& context, size_t bytes, uint64_t* address);
alloc::Chunk* found_at_rest(CUdeviceptr address);
CUresult free_in_capture(Context& owner, alloc::Chunk* chunk, CUdeviceptr address);

// If only phases are recorded, they count the free here. Another thread may have the memory
// already: then both blocks count for a moment.
[[gnu::always_inline]] inline CUresult answer_of_free(alloc::Freed freed, int code,
                                                      uint64_t bytes) {
  if (watching_phases_alone()) [[unlikely]] {
    if (code == CUDA_SUCCESS && phases().by_live_bytes()) phase_freed(bytes);
  }
  return freed == alloc::Freed::invalid ? CUDA_ERROR_INVALID_VALUE : static_cast<CUresult>(code);
}

// An address of an idle block, or one inside a block, is refused here: the driver would really free
// the chunk behind it.
[[gnu::always_inline]] inline CUresult free_block(Context& owner, alloc::Chunk* chunk,
                                                  CUdeviceptr address,
                                                  alloc::Ticket latest = alloc::Reclaim::kNow) {
  int code;
  uint64_t bytes;
  const alloc::Freed freed = owner.pool.free(chunk, address, &code, latest, &bytes);
  return answer_of_free(freed, code, bytes);
}

// The run of the graph that the calling thread is in; 0: none.
uint32_t graph_now() { return phases_on() ? current_graph().run : 0; }

[[gnu::cold]] alloc::plan::Caller caller() {
  return {this_thread.number(), graph_now(), uint64_t{this_thread.site} << 32 | current_range()};
}

// The code of a request and of a free is in the object twice: in the hooks, and once for watched
// calls.
[[gnu::always_inline]] inline CUresult serve(Context& context, CUdeviceptr* out, size_t bytes) {
  bool pooled = true, usual = true, planned = false;
  const Device& device = device_state(context.device);
  if (bytes > device.fast_path_max_bytes.load(std::memory_order_relaxed)) [[unlikely]] {
    if (bytes > device.max_request_bytes.load()) return allocate_too_much(context, out, bytes);
    if (device.chooses_requests.load(std::memory_order_relaxed)) pooled = selected(bytes);
    usual = false;
    planned = context.pool.has_plan();
  }
  if (const CUresult result = condition_of(context); result != CUDA_SUCCESS) [[unlikely]]
    return result;
  uint64_t address;
  int code;
  if (!pooled || capture_gate().capturing()) [[unlikely]] {
    code = allocate_outside_pools(context, bytes, pooled, &address);
    if (planned && code == CUDA_SUCCESS)
      context.pool.pass_over_planned(bytes, this_thread.number(), graph_now());
  } else if (planned &&
             context.pool.allocate_planned(bytes, this_thread.number(), graph_now(), &address)) {
    code = CUDA_SUCCESS;
  } else if (!usual && (context.pool.groups() || context.pool.arenas())) [[unlikely]] {
    code = allocate_with_others(context, bytes, &address);
  } else {
    code = context.pool.allocate(bytes, this_thread.shard(), &address);
  }
  if (code == CUDA_ERROR_OUT_OF_MEMORY) [[unlikely]]
    code = allocate_at_last(context, bytes, pooled, &address);
  if (code == CUDA_SUCCESS && others_debts()) [[unlikely]]
    code = exchange_for_unowed(context, bytes, &address);
  if (code == CUDA_SUCCESS) [[likely]] {
    if (planned && context.pool.looks_for_plan()) [[unlikely]]
      context.pool.note_served(bytes, caller(), address);
    if (watching_phases_alone() && phases().by_live_bytes()) [[unlikely]]
      phase_allocated(bytes);
    *out = address;
    return CUDA_SUCCESS;
  }
  return code == CUDA_ERROR_OUT_OF_MEMORY ? out_of_memory(context, bytes)
                                          : static_cast<CUresult>(code);
}

[[gnu::always_inline]] inline CUresult take_back(alloc::Chunk* chunk, CUdeviceptr address) {
  Context& owner = *context_of(chunk);
  if (const CUresult result = refusal(owner); result != CUDA_SUCCESS) [[unlikely]]
    return result;
  if (capture_gate().capturing()) [[unlikely]]
    return free_in_capture(owner, chunk, address);
  const FreeWait wait = wait_before_free(owner, chunk, address);
  return wait.over ? wait.answer : free_block(owner, chunk, address, wait.latest);
}

}  // namespace

Context* serving_context(const CUdeviceptr* out, size_t bytes) {
  return active() && out != nullptr && bytes != 0 ? current_context() : nullptr;
}

CUresult allocate(Context& context, CUdeviceptr* out, size_t bytes) {
  return serve(context, out, bytes);
}

[[gnu::noinline]] CUresult allocate_watched(Context& context, CUdeviceptr* out, size_t bytes) {
  return serve(context, out, bytes);
}

bool ours(CUdeviceptr address, alloc::Chunk** chunk) {
  if (!active() || address == 0) return false;
  *chunk = shared().index.find(address);
  if (*chunk == nullptr) return false;
  if (contexts_ending.load(std::memory_order_relaxed) != 0 ||
      (*chunk)->is() == alloc::Role::released) [[unlikely]] {
    *chunk = found_at_rest(address);
  }
  return *chunk != nullptr;
}

CUresult free(alloc::Chunk* chunk, CUdeviceptr address) { return take_back(chunk, address); }

[[gnu::noinline]] CUresult free_watched(alloc::Chunk* chunk, CUdeviceptr address) {
  return take_back(chunk, address);
}

// Memory that goes back to the driver may be under a debt, if the pool handed it out before. The
// stream of the call already waits for the debts of this thread (hooks/stream_ordered.cc). If a
// wait for another thread's debts timed out, only a free that waits for all work keeps their order.
CUresult free_ordered(alloc::Chunk* chunk, CUdeviceptr address,
                      const alloc::OrderedFree& in_driver) {
  Context& owner = *context_of(chunk);
  if (const CUresult result = refusal(owner); result != CUDA_SUCCESS) return result;
  const bool known =
      chunk->is() == alloc::Role::whole && chunk->exported.load(std::memory_order_relaxed);
  if (known && others_debts() && !pay_for_release()) return free_block(owner, chunk, address);
  int code;
  uint64_t bytes;
  const alloc::Freed freed = owner.pool.free_ordered(chunk, address, &code, in_driver, &bytes);
  return answer_of_free(freed, code, bytes);
}

namespace {

// A request larger than the device or the cap is refused at once: releasing idle memory could not
// help.
[[gnu::cold]] CUresult allocate_too_much(Context& context, CUdeviceptr* out, size_t bytes) {
  Device& device = device_state(context.device);
  if (bytes > device.total.load()) {
    const CUresult result = noted(driver().cuMemAlloc_v2(out, bytes));
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    device.ledger.refused.add();
    device.ledger.shortages.add();
    device.ledger.served_by[static_cast<int>(alloc::Step::refused)].add();
    device.ledger.out_of_memory.add();
    return out_of_memory(context, bytes);
  }
  out_of_memory(context, bytes);
  return no_room();
}

// A request that the settings keep out of the pools, or a request during a capture, which the
// driver must answer. The cap may refuse it without a driver call. So under a cap the driver is
// first asked whether the capture forbids the call.
[[gnu::cold]] int allocate_outside_pools(Context& context, size_t bytes, bool pooled,
                                         uint64_t* address) {
  if (!pooled && !capture_gate().capturing()) {
    return context.pool.allocate_unpooled(bytes, this_thread.shard(), address);
  }
  const bool capped = device_state(context.device).cap.limit() != 0;
  const CUresult unsafe = capped ? ask_for_unsafe_call() : CUDA_SUCCESS;
  if (unsafe != CUDA_SUCCESS) return unsafe;
  return context.pool.allocate_direct(bytes, this_thread.shard(), pooled, address);
}

// Allocates among the blocks of its group or of its graph. If the call site is not known yet, it is
// determined here.
int allocate_with_others(Context& context, size_t bytes, uint64_t* address) {
  Thread& thread = this_thread;
  const unsigned shard = thread.shard();
  uint32_t site = 0;
  if (context.pool.groups()) site = thread.site != 0 ? thread.site : capture_site();
  const auto [run, name] = current_graph();
  if (site != 0) {
    const alloc::Groups::Caller caller{thread.number(), site};
    return context.pool.allocate_in_group(bytes, shard, caller, {run, name}, address);
  }
  return context.pool.allocate_in_graph(bytes, shard, {run, name}, address);
}

// The last attempts before the program gets out of memory. A capture, even one that has ended
// since, may have kept the pools from releasing memory for this request, so they release it now. If
// the driver still has none, memory of the pools also serves a request that should not be pooled.
[[gnu::cold]] int allocate_at_last(Context& context, size_t bytes, bool pooled, uint64_t* address) {
  const unsigned shard = this_thread.shard();
  const auto allocate = [&] { return context.pool.allocate_direct(bytes, shard, pooled, address); };
  release_idle_memory();
  const int code = again_with_idle_memory(allocate(), allocate);
  const bool refused = code == CUDA_ERROR_OUT_OF_MEMORY && !pooled;
  return refused ? context.pool.allocate_at_last(bytes, shard, address) : code;
}

// Frees a block that the program never got: the program made one request and no free.
void free_uncounted(Context& context, CUdeviceptr address) {
  int code;
  context.pool.free(shared().index.find(address), address, &code, kClean);
  Device& device = device_state(context.device);
  device.past_allocations.add(~uint64_t{0});
  device.past_frees.add(~uint64_t{0});
}

// The memory may have been freed under a debt of another thread (barrier/work.h). With the driver
// alone, that free would not be over yet. If the debt is not over within a second, other memory is
// taken, as with the driver. That happens once: afterwards no free leaves a debt.
[[gnu::cold]] int exchange_for_unowed(Context& context, size_t bytes, uint64_t* address) {
  alloc::Chunk* chunk = shared().index.find(*address);
  if (chunk == nullptr || chunk->is() == alloc::Role::direct) return CUDA_SUCCESS;
  if (pay_for_release()) return CUDA_SUCCESS;
  leave_no_more_debts();
  uint64_t other = 0;
  const int code =
      context.pool.allocate_direct(bytes, this_thread.shard(), /*pooled=*/true, &other);
  const alloc::Chunk* taken = code == CUDA_SUCCESS ? shared().index.find(other) : nullptr;
  const bool unowed = taken != nullptr && taken->is() == alloc::Role::direct;
  if (!unowed && pay_debts()) {
    if (code == CUDA_SUCCESS) free_uncounted(context, other);
    return CUDA_SUCCESS;
  }
  free_uncounted(context, *address);
  if (code == CUDA_SUCCESS && !unowed) {  // it is the pool's as well, and there is no other
    free_uncounted(context, other);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = other;
  return code;
}

// The chunk at an address, or nullptr, once that is settled. A chunk that is being returned to the
// driver, by itself or with its context, stays in the index until the driver has it. Then the
// address is the driver's, or a new chunk's. Waits no longer than a free may take on a busy device.
[[gnu::cold]] alloc::Chunk* found_at_rest(CUdeviceptr address) {
  alloc::Chunk* chunk = nullptr;
  const auto rests = [&] {
    chunk = shared().index.find(address);
    return chunk == nullptr ||
           (chunk->is() != alloc::Role::released && !context_of(chunk)->source.closing());
  };
  alloc::os::wait_until(rests, alloc::Deadlines::kRelease);
  return chunk;
}

// A careful process may capture at any time. The driver takes back a direct allocation. A block
// that a pool handed out earlier is not reused: its chunk is released as soon as nothing else is in
// it.
[[gnu::cold]] CUresult free_in_capture(Context& owner, alloc::Chunk* chunk, CUdeviceptr address) {
  const bool left = careful() && chunk->is() != alloc::Role::direct;
  if (left || !careful()) {
    if (const CUresult result = ask_for_unsafe_call(); result != CUDA_SUCCESS) return result;
  }
  const FreeWait wait = wait_before_free(owner, chunk, address);
  if (wait.over) return wait.answer;
  const CUresult result = free_block(owner, chunk, address, wait.latest);
  if (result == CUDA_SUCCESS && left) return_freed(owner);
  return result;
}

}  // namespace
}  // namespace cistern::shim
