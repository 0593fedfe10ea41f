// SPDX-License-Identifier: Apache-2.0
// What ties contexts: work of one that may touch memory of another. Memory of a context is clean
// once that context and those tied to it have finished (allocator/reclaim/reclaim.h); all others
// never delay it. A tie lasts as long as the work that made it, or, for peer access, until that is
// disabled.
//
// Peer access concerns memory of cuMemAlloc, which the pools serve. Access to the driver's memory
// pools and to memory that the program maps itself (cuMemPoolSetAccess, cuMemSetAccess) needs no
// tie: neither is in a pool of ours, and the scratch cache reuses memory of the driver's pools only
// in stream order, in which the program must order every use before the free. Any thread.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/contexts/context_set.h"

namespace cistern::shim {

struct Context;

// All contexts there are, and kCrowd for those without a number.
ContextSet living_contexts();

// Whether any context of the process has peer access to another one's memory, or may have.
bool any_peer_access();

// Work was just handed to each of `workers` that may touch memory of each of `owners`, and of every
// context that one of the workers reaches by peer access.
void tie(const ContextSet& owners, const ContextSet& workers);

// The devices whose contexts reach memory of the context with this number by peer access, as bits;
// also of contexts that are not known.
uint64_t devices_reaching(uint32_t owner);

// The program enabled or disabled the access of its current context to memory of `owner`.
void peer_access_changed(CUcontext owner, bool on);
// The program opened memory of another process in its current context, which from now on may reach
// every context on the device of that memory (CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS).
void peer_device_opened(CUdeviceptr address);

// The work of this party may touch memory of every context, those included that appear later; no
// hook saw when it began to. Lasts until the party is gone.
void reaches_everything(uint32_t worker);

// A context appears, and can be found already; it is gone.
void ties_of_new_context(const Context& context);
void ties_of_context_gone(const Context& context);
// No context without a number is left (contexts/crowd.h).
void ties_of_crowd_gone();
void reset_ties_after_fork();

}  // namespace cistern::shim
