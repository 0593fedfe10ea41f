// SPDX-License-Identifier: Apache-2.0
// The program waits for all work of a context: after that, no work of this context can touch what
// was freed before (allocator/reclaim/reclaim.h). Any thread.
#pragma once

#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// Put around the driver's call that synchronises a context (nullptr: the current one); succeeded()
// is called if that call did.
class SynchroniseScope {
 public:
  explicit SynchroniseScope(CUcontext handle);
  ~SynchroniseScope();
  SynchroniseScope(const SynchroniseScope&) = delete;
  SynchroniseScope& operator=(const SynchroniseScope&) = delete;
  void succeeded();
  // Covers all work handed over before; once succeeded(), the context has passed it.
  alloc::Ticket ticket() const { return ticket_; }

 private:
  Context* context_;
  CUcontext in_crowd_ = nullptr;  // the context, if it has no number
  alloc::Ticket ticket_ = 0;
  uint64_t losses_ = 0;
};

}  // namespace cistern::shim
