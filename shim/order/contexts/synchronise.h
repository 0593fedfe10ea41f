// SPDX-License-Identifier: Apache-2.0
// Waits for all work of a context: after that, no work of this context can touch what was freed
// before (allocator/reclaim/reclaim.h). Any thread.
#pragma once

#include <optional>

#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// Put around a driver call that synchronises a context. Call succeeded() if that call succeeded and
// the context did not end meanwhile.
class ContextWait {
 public:
  explicit ContextWait(Context& context);
  ~ContextWait();
  ContextWait(const ContextWait&) = delete;
  ContextWait& operator=(const ContextWait&) = delete;
  void succeeded();
  // Covers all work submitted before the constructor. After succeeded() the context has passed it.
  alloc::Ticket ticket() const { return ticket_; }

 private:
  Context& context_;
  uint64_t losses_;
  alloc::Ticket ticket_;
  uint64_t last_debt_;
};

// The same for a synchronisation by the program. It also informs the garbage and the clients, such
// as the scratch cache. `handle` nullptr: the current context.
class SynchroniseScope {
 public:
  explicit SynchroniseScope(CUcontext handle);
  SynchroniseScope(const SynchroniseScope&) = delete;
  SynchroniseScope& operator=(const SynchroniseScope&) = delete;
  void succeeded();

 private:
  Context* context_;
  std::optional<ContextWait> wait_;
  CUcontext in_crowd_ = nullptr;  // the context, if it has no number
  alloc::Ticket in_crowd_ticket_ = 0;
};

}  // namespace cistern::shim
