// SPDX-License-Identifier: Apache-2.0
// The program waits for all work of a context: what was freed before is clean after it. Any thread.
#pragma once

#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// Around the driver's call that synchronises a context (nullptr: the current one).
class SynchroniseScope {
 public:
  explicit SynchroniseScope(CUcontext handle);
  void succeeded();
  // Covers all work handed over before; once succeeded(), the context has passed it.
  alloc::Ticket ticket() const { return ticket_; }

 private:
  Context* context_;
  alloc::Ticket ticket_ = 0;
  uint64_t losses_ = 0;
};

}  // namespace cistern::shim
