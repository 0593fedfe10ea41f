// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context_life.h"

#include <new>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/entry/unknown.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/captures/graphs.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/contexts/pinned_pools.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/order/submissions.h"
#include "shim/order/ties.h"
#include "shim/process/background.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"
#include "shim/sites/sites.h"

namespace cistern::shim {
namespace {

constinit alloc::Mutex mutex;  // held while a slot changes hands

// A slot that no context uses; nullptr: there is none.
Context* free_slot() {
  for (int i = 0, n = context_slots(); i < n; ++i) {
    Context* slot = context_at(i);
    if (slot != nullptr && slot->handle.load(std::memory_order_relaxed) == nullptr) return slot;
  }
  auto* context = static_cast<Context*>(alloc::os::map(sizeof(Context), 4096));
  const int number = context == nullptr ? -1 : new_reclaim_number();
  if (number < 0) {
    if (context != nullptr) alloc::os::unmap(context, sizeof(Context));
    return nullptr;
  }
  new (context) Context{};
  alloc::os::give_back_zero_pages(context, sizeof(Context));
  context->number = static_cast<uint32_t>(number);
  add_context_slot(context);
  return context;
}

uint64_t id_of(CUcontext handle) {
  unsigned long long id;
  const auto ask = driver().cuCtxGetId;
  return ask != nullptr && ask(handle, &id) == CUDA_SUCCESS ? id : 0;
}

Device& device_in_use(CUdevice device) {
  Device& d = device_state(device);
  if (!d.used.load(std::memory_order_relaxed)) {
    d.garbage.init(alloc::garbage_rules(policy()), &shared().reclaim);
    d.used.store(true, std::memory_order_release);
  }
  return d;
}

// One round of the background thread (process/background.h) over all pools, while the program makes
// no call. True if there is more to do. It polls for memory that became clean, releases memory that
// was idle for long, and does the work that frees deferred (ContextPool::work_in_background). Each
// of its driver calls passes the capture gate, so none is made while a capture is in progress. It
// counts as a visitor of a context, so it makes none in a context that may be about to end.
bool tend_all_pools() {
  bool more = false;
  for_each_context([&](Context& context) {
    if (!may_call()) return;
    const Visit visit(context);
    more |= visit.closing() || (visit.open() && context.pool.work_in_background());
  });
  for_each_pinned_pool([&](PinnedPool& pinned) {
    if (!may_call()) return;
    const PinnedVisit visit(pinned);
    more |= visit.closing() || (visit.open() && pinned.pool.work_in_background());
  });
  return more;
}

constexpr BackgroundWork kTendPools{.round = tend_all_pools,
                                    .pause_ns = [] { return shared().idle.tick_ns; },
                                    .calls_driver = true,
                                    .keeps_thread = false};

// Requests the background thread, because memory becomes idle or (`now`) because a free deferred
// its work. False: there is no such thread. Any thread.
bool request_background_work(bool now) { return attend(now, &kTendPools); }

constexpr CudaSource::Others kOthers{
    .request_background_work = request_background_work,
    .release_from_other_pools =
        [](CUdevice device) { return release_idle_memory_of(device, current_context()); },
    .look_at_ties = look_at_copies,
    .peers = devices_reaching,
};

bool reaches_pageable_memory(CUdevice device) {
  int reaches = 0;
  const auto ask = driver().cuDeviceGetAttribute;
  return ask != nullptr &&
         ask(&reaches, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device) == CUDA_SUCCESS &&
         reaches != 0;
}

// Caller holds the lock. nullptr: no number is left.
Context* create(CUcontext handle, uint64_t id, CUdevice device, bool careful) {
  if (context_slots() == 0) {
    shared().idle = alloc::idle_release(policy());
    if (streams_followed()) submissions_looked_at.fetch_add(1);
  }
  Context* context = free_slot();
  if (context == nullptr) return nullptr;
  Device& d = device_in_use(device);
  context->device = device;
  context->id.store(id, std::memory_order_relaxed);
  context->suspicion.store(0, std::memory_order_relaxed);
  context->attached.store(0, std::memory_order_relaxed);
  context->seen_empty.end();  // another thread that retained it may have used it
  context->unfinished.reset();
  context->unused_block.store(0, std::memory_order_relaxed);
  context->careful.store(careful);
  context->source.init(handle, device, context->number, &kOthers);
  context->source.set_careful(careful);
  const alloc::DeviceParts parts{.ledger = &d.ledger,
                                 .cap = &d.cap,
                                 .garbage = d.garbage.on() ? &d.garbage : nullptr,
                                 .fill = alloc::fill_mode(policy()),
                                 .reuse = alloc::reuse_rule(policy()),
                                 .plan = claim_plan(device, d.total.load(), context->number),
                                 .plans = policy().plan.value.mode == config::PlanMode::kAuto};
  const alloc::ChunkSizes sizes = sizes_on(d, context->source.units() != nullptr);
  d.strategy.store(sizes.kind, std::memory_order_relaxed);
  const alloc::GroupRules groups = alloc::group_rules(policy());
  if (groups.on) switch_sites_on();
  context->pool.init(&shared(), &context->source, parts, context->number, sizes, groups);
  shared().reclaim.join(context->number, &context->source, /*was_there=*/careful);
  context->handle.store(handle);
  count_contexts(1);
  ties_of_new_context(*context);
  pinned_pools_of_worker(context->number);
  if (careful) reaches_everything(context->number);  // and no context counts as empty
  return context;
}

// Caller holds the lock.
void joined_crowd(CUcontext handle, uint64_t id) {
  static constinit std::atomic<bool> told{false};
  if (!join_crowd(handle, id)) return shared().reclaim.freeze();
  pinned_pools_of_worker(kCrowd);
  if (told.exchange(true)) return;
  log(config::LogLevel::kInfo,
      "too many contexts for pools; value seen %d; allowed: %d; the driver alone serves the others",
      context_slots() + 1, context_slots());
}

void left_crowd(CUcontext handle, uint64_t id) {
  alloc::LockGuard guard(mutex);
  if (leave_crowd(handle, id)) ties_of_crowd_gone();
}

// The program has got a careful context from a call that a hook saw. The context lasts until the
// program releases it, and gets a pool. It still counts as reaching everything.
void trust(Context& context, CUcontext handle) {
  if (!context.careful.load()) return;
  const alloc::LockGuard guard(mutex);
  if (context.handle.load() != handle) return;
  context.source.set_careful(false);
  context.careful.store(false);
}

// The context with this id is gone; its slot may be another context's by now.
void gone(Context* context, uint64_t id) {
  alloc::LockGuard guard(mutex);
  if (context->id.load(std::memory_order_relaxed) != id) return;
  // From here on no thread finds the context. Its slot is not reused before the lock is free, nor
  // while a thread that found it earlier reads its figures.
  CUcontext handle = context->handle.exchange(nullptr);
  if (handle == nullptr) return;
  alloc::os::wait_while([&] { return context->visitors.load() != 0; });
  handle_changed_meaning();
  count_contexts(-1);
  ties_of_context_gone(*context);
  pinned_pools_gone(*context);
  shared().reclaim.leave(context->number);
  Device& d = device_state(context->device);
  d.past_allocations.add(context->pool.allocations());
  d.past_frees.add(context->pool.frees());
  debt_of_context_gone(*context);
  visible_work_gone(handle);
  functions_changed();  // its code is gone as well
  context->source.context_gone();
  const uint64_t held = context->pool.usage().live;
  context->pool.forget_all();
  give_up_plan(context->number);
  capture_gate().context_gone(handle);
  graphs_of_context_gone(handle);
  streams().context_gone(handle);
  tell_clients(&ContextClient::gone, *context, handle, held);
}

}  // namespace

void context_appeared(CUcontext handle, CUdevice device) {
  const uint64_t id = id_of(handle);
  if (Context* known = context_named(handle)) {
    const uint64_t known_id = known->id.load(std::memory_order_relaxed);
    if (id == known_id || id == 0 || known_id == 0) return trust(*known, handle);
    // The handle belonged to an earlier context. The thread that ended it has not reached
    // EndingScope::ended() yet.
    gone(known, known_id);
  }
  uint64_t crowd_id = 0;
  if (in_crowd(handle, &crowd_id)) {
    if (id == crowd_id) return;
    left_crowd(handle, crowd_id);
  }
  const bool exists = known_device(device) != nullptr;
  if (reaches_pageable_memory(device)) all_host_memory_appears();
  const alloc::LockGuard guard(mutex);
  if (context_named(handle) != nullptr) return;  // another thread was faster
  if (!exists || create(handle, id, device, /*careful=*/false) == nullptr) joined_crowd(handle, id);
}

bool context_noticed(CUcontext handle, CUdevice device) {
  pay_debts();  // it may use memory that is under a debt
  const uint64_t id = id_of(handle);
  const bool exists = known_device(device) != nullptr;
  const alloc::LockGuard guard(mutex);
  if (context_named(handle) != nullptr || in_crowd(handle)) return false;
  if (exists && create(handle, id, device, /*careful=*/true) != nullptr) return true;
  // Earlier frees wait for its work as well, and Cistern cannot see when that work is over.
  shared().reclaim.freeze();
  end_seen_empty();
  joined_crowd(handle, id);
  reaches_everything(kCrowd);
  return true;
}

void context_attached(CUcontext handle) {
  if (ContextSlot* context = find_context_slot(handle)) context->attached.fetch_add(1);
}

bool context_detached(CUcontext handle) {
  ContextSlot* context = find_context_slot(handle);
  if (context == nullptr || context->attached.load() == 0) return false;
  context->attached.fetch_sub(1);
  return true;
}

EndingScope::EndingScope(CUcontext handle)
    : handle_(handle), context_(handle == nullptr ? nullptr : context_named(handle)) {
  if (context_ == nullptr) {
    in_crowd_ = handle != nullptr && in_crowd(handle, &id_);
    return;
  }
  pay_debts();
  contexts_ending.fetch_add(1);
  id_ = context_->id.load(std::memory_order_relaxed);
  tell_clients(&ContextClient::closing, *context_);
  context_->source.begin_closing();
  shared().reclaim.settle(
      context_->number);  // waits for a call on the context's events that is under way
  // A thread of another context may be releasing what this one keeps, or some thread may be filling
  // or releasing memory of this one.
  alloc::os::wait_while(
      [this] { return context_->visitors.load() != 0 || context_->source.at_work(); });
  await_pinned_pools(*context_);
}

EndingScope::~EndingScope() {
  if (context_ == nullptr) return;
  context_->source.end_closing();
  contexts_ending.fetch_sub(1);
  tell_clients(&ContextClient::reopened, *context_);
}

void EndingScope::ended() {
  if (context_ != nullptr) gone(context_, id_);
  if (in_crowd_) left_crowd(handle_, id_);
}

void reset_contexts_after_fork() {
  mutex.reset();
  reset_debts_after_fork();
  reset_visible_after_fork();
  reset_visible_work_after_fork();
  reset_submissions_after_fork();
  reset_ties_after_fork();
  reset_copy_ends_after_fork();
  reset_crowd_after_fork();
  shared().reset_after_fork();
  for (int i = 0; i < kMaxDevices; ++i) device_state(i).garbage.reset_after_fork();
  for (int i = 0; i < context_slots(); ++i) {
    if (Context* context = context_at(i)) context->pool.reset_after_fork();
  }
  reset_pinned_pools_after_fork();
}

// --- contexts that no hook saw created ---

namespace {

bool is_known(CUcontext handle) {
  return context_named(handle) != nullptr || in_crowd(handle) || is_green(handle);
}

// A green context works on a primary one. The program need not have asked for the green one's
// handle.
bool is_green_stream(CUstream stream) {
  CUgreenCtx green = nullptr;
  const auto ask = driver().cuStreamGetGreenCtx;
  return ask != nullptr && ask(stream, &green) == CUDA_SUCCESS && green != nullptr;
}

}  // namespace

// The context may be gone, but still current to this thread: then the driver returns an error. If
// another thread is inside the call that creates the context, the call is counted as appearing, and
// the context is known before that count drops. The generation shows whether the context has ended
// again since.
void unknown_context(CUcontext handle, uint32_t generation) {
  CUdevice device;
  if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return;
  if (contexts_appearing() || contexts_ending.load() != 0) return;
  if (is_known(handle) || context_generation() != generation) return;
  if (context_noticed(handle, device)) noticed(Unseen::kContext);
}

bool about_to_be_retained(CUcontext handle) {
  CUdevice device;
  unsigned int flags;
  int active = 1;
  if (!runtime_has_tables() || is_known(handle)) return false;
  if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return false;
  const CUresult asked = driver().cuDevicePrimaryCtxGetState(device, &flags, &active);
  return asked == CUDA_SUCCESS && active == 0 && await_primary(device, handle);
}

void notice_context(CUcontext handle) {
  if (handle == nullptr || !active()) return;
  const uint32_t generation = context_generation();
  if (is_known(handle)) return;
  const ContextScope scope(handle);
  if (scope) unknown_context(handle, generation);
}

void notice_context_of(CUstream stream) {
  CUcontext context = nullptr;
  const auto ask = driver().cuStreamGetCtx;
  if (stands_for_several(stream) || ask == nullptr || ask(stream, &context) != CUDA_SUCCESS) return;
  if (context != nullptr && !is_known(context) && !is_green_stream(stream)) notice_context(context);
}

// --- synchronisations ---

namespace {

// A context whose creation no hook saw is noticed here.
Context* context_to_synchronise(CUcontext handle) {
  if (handle == nullptr) {
    if (Context* context = current_context()) return context;
    handle = current_handle();
  }
  notice_context(handle);
  return handle == nullptr ? nullptr : context_named(handle);
}

}  // namespace

ContextWait::ContextWait(Context& context)
    : context_(context),
      losses_(streams().losses()),
      ticket_(shared().reclaim.close()),
      last_debt_(last_debt()) {
  if (policy().free_sync != config::FreeSync::kFalse) context.seen_empty.expect(ticket_);
  context.source.synchronising().fetch_add(1);
}

ContextWait::~ContextWait() { context_.source.synchronising().fetch_sub(1); }

// A free that must wait for work of other contexts as well still waits.
void ContextWait::succeeded() {
  alloc::Reclaim& reclaim = shared().reclaim;
  context_.source.synchronised(losses_);
  reclaim.passed(context_.number, ticket_);
  paid_by_synchronisation(context_, last_debt_);
  const bool alone = !any_peer_access() && !reclaim.tied(context_.number);
  if (alone && !reclaim.frozen() && !is_work_unseen()) {
    context_.seen_empty.confirm(ticket_, SeenEmpty::By::kSynchronisation);
  }
}

SynchroniseScope::SynchroniseScope(CUcontext handle) : context_(context_to_synchronise(handle)) {
  look_for_unknown_links();  // if work is unseen, a synchronisation proves nothing
  if (context_ == nullptr) {
    if (handle == nullptr && crowd_lives()) handle = current_handle();
    if (handle == nullptr || !in_crowd(handle)) return;
    in_crowd_ = handle;
    in_crowd_ticket_ = shared().reclaim.close();
    return;
  }
  tell_clients(&ContextClient::before_synchronise, *context_);
  context_->pool.before_synchronise();
  wait_.emplace(*context_);
}

void SynchroniseScope::succeeded() {
  if (in_crowd_ != nullptr) crowd_synchronised(in_crowd_, in_crowd_ticket_);
  if (context_ == nullptr) return;
  wait_->succeeded();
  context_->pool.synchronised(wait_->ticket());
  tell_clients(&ContextClient::synchronised, *context_, wait_->ticket());
  // The program has just waited for the device, so the driver's free will not make it wait again.
  if (context_ == current_context()) context_->pool.release_excess();
}

}  // namespace cistern::shim
