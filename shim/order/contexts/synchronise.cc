// SPDX-License-Identifier: Apache-2.0

#include "shim/entry/unknown.h"
#include "shim/order/barrier/work.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_life.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_registry.h"
#include "shim/order/ties.h"
#include "shim/process/settings.h"

namespace cistern::shim {

namespace {

// A context whose creation no hook saw is noticed here.
Context* known_context(CUcontext handle) {
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

SynchroniseScope::SynchroniseScope(CUcontext handle) : context_(known_context(handle)) {
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
