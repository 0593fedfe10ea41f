// SPDX-License-Identifier: Apache-2.0
// What the rooms above keep for a context or a device beside its pool (kinds/: the scratch cache,
// charges) is told here what happens to the context, and asked for its idle memory. Includes run
// down only, so the highest room fills this table in: hooks/parts.cc.
#pragma once

#include <span>

#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// A null member means: nothing to do. Any thread calls any of them; no lock is held but in gone().
struct ContextClient {
  // A driver call that may end the context is about to be made, and is over: calls come in pairs.
  void (*closing)(const Context& context) = nullptr;
  void (*reopened)(const Context& context) = nullptr;
  // The context ended, and its handle may be another one's by now. Its slot is not used again
  // before this returns.
  void (*gone)(const Context& context, CUcontext handle) = nullptr;
  // The program is about to wait for the context, and has; `ticket` was closed in between.
  void (*before_synchronise)(const Context& context) = nullptr;
  void (*synchronised)(const Context& context, alloc::Ticket ticket) = nullptr;
  // Memory is short on the device, or (kNoDevice) on one that is not known: gives back what is
  // idle. True if anything was.
  bool (*release_idle_memory)(CUdevice device) = nullptr;
};

std::span<const ContextClient> context_clients();

template <typename... Parameters, typename... Arguments>
void tell_clients(void (*ContextClient::*what)(Parameters...), const Arguments&... arguments) {
  for (const ContextClient& client : context_clients()) {
    if (client.*what != nullptr) (client.*what)(arguments...);
  }
}

}  // namespace cistern::shim
