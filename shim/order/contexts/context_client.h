// SPDX-License-Identifier: Apache-2.0
// The clients of contexts: code in folders above this one that keeps something for a context or a
// device beside its pool (kinds/: the scratch cache, charges). Through this table a client learns
// what happens to a context, and returns its idle memory on request. Includes go one way only, so
// the topmost folder fills the table in (hooks/parts.cc).
#pragma once

#include <span>

#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// A null member means: nothing to do. Any thread may call any of them. No lock is held, except in
// gone(), where it is that of context_life.cc.
struct ContextClient {
  // closing(): a driver call that may end the context is about to be made. reopened(): that call is
  // over. The two come in pairs.
  void (*closing)(const Context& context) = nullptr;
  void (*reopened)(const Context& context) = nullptr;
  // The context ended, and its handle may be another one's by now. Its slot is not used again
  // before this returns. `held`: bytes of its pool that the program had and did not free.
  void (*gone)(const Context& context, CUcontext handle, uint64_t held) = nullptr;
  // The program is about to wait for the context, and has; `ticket` was closed in between.
  void (*before_synchronise)(const Context& context) = nullptr;
  void (*synchronised)(const Context& context, alloc::Ticket ticket) = nullptr;
  // Memory is short on the device, or (kNoDevice) on one that is not known: releases what is idle.
  // True if that was anything.
  bool (*release_idle_memory)(CUdevice device) = nullptr;
  // The program is about to be told how much of the device is free: what is kept, and counted
  // nowhere as idle, goes back.
  void (*before_free_is_told)(CUdevice device) = nullptr;
};

std::span<const ContextClient> context_clients();

template <typename... Parameters, typename... Arguments>
void tell_clients(void (*ContextClient::*what)(Parameters...), const Arguments&... arguments) {
  for (const ContextClient& client : context_clients()) {
    if (client.*what != nullptr) (client.*what)(arguments...);
  }
}

}  // namespace cistern::shim
