// SPDX-License-Identifier: Apache-2.0
// Ties between contexts: work of one context may touch memory of another. Memory of a context is
// clean once that context and those tied to it have finished (allocator/reclaim/reclaim.h); all
// others never delay it. A tie lasts as long as the work that made it. A tie by peer access lasts
// until that is disabled. Any thread.
//
// Peer access concerns memory of cuMemAlloc, which the pools serve. Access to the driver's memory
// pools and to memory that the program maps itself (cuMemPoolSetAccess, cuMemSetAccess) needs no
// tie: neither is in a pool of ours, and the scratch cache reuses memory of the driver's pools only
// in stream order, in which the program must order every use before the free.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {

struct Context;

// All contexts there are, and kCrowd for those without a number.
ContextSet living_contexts();

// Whether any context of the process has peer access to another one's memory, or may have.
bool any_peer_access();

// Work was just handed to each of `workers` that may touch memory of each of `owners`, and of every
// context that one of the workers reaches by peer access.
void tie(const ContextSet& owners, const ContextSet& workers);

// The devices whose contexts reach memory of the context with this number by peer access, as bits.
// Includes the devices of contexts that Cistern does not know.
uint64_t devices_reaching(uint32_t owner);

// The program enabled or disabled the access of its current context to memory of `owner`.
void peer_access_changed(CUcontext owner, bool on);
// The program opened memory of another process in its current context, which from now on may reach
// every context on the device of that memory (CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS).
void peer_device_opened(CUdeviceptr address);

// Ties this party of reclamation to every context, also to later ones, until the party is gone: its
// work may touch their memory, and no hook saw since when.
void reaches_everything(uint32_t worker);

// To be called when a new context can be found already; when a context is gone.
void ties_of_new_context(const Context& context);
void ties_of_context_gone(const Context& context);
// No context without a number is left (contexts/context_slot.h).
void ties_of_crowd_gone();
void reset_ties_after_fork();

// --- the ends of copies. A copy ties contexts until it is done. Drivers that record no event for a
// whole context make marks in frees and allocations only (streams/stream_marks.h), so the next mark
// of the context that copies may come after work that never ends. There an event is recorded on the
// copy's own stream instead, right behind it and in the same call of the program. So it orders
// nothing that the copy does not: on the legacy stream it may follow work that another thread
// submits just then, which the copy itself might have followed as well. At most kMost copies are
// followed at a time; the ties of others, and of those whose event cannot be recorded or asked, end
// with marks (Reclaim::only_marks_untie). An event is destroyed once it has passed, or ends with
// its context. The caller may hold no lock.

// Put around the making of ties for work that was just handed to `stream`; `workers` are all
// contexts that may do the work. Does nothing if the driver can record events for whole contexts.
class FollowedCopy {
 public:
  FollowedCopy(const ContextSet& workers, CUstream stream);
  ~FollowedCopy();
  FollowedCopy(const FollowedCopy&) = delete;
  FollowedCopy& operator=(const FollowedCopy&) = delete;

 private:
  const NoCancel place_is_left_;
  const ContextSet& workers_;
  CUstream stream_;
  int place_;  // in the list of those that are followed; kUnfollowed, or kNotNeeded
};

// Tells Reclaim which copies are done by now. Returns at once while another thread does so.
void look_at_copies();

void reset_copy_ends_after_fork();

// --- access of peers to units, defined in cuda_units.cc. Peer access that the driver grants covers
// only memory of cuMemAlloc. Memory of the expandable pools is mapped by virtual memory management
// and has a list of devices instead. These functions change the list as the program enables and
// disables peer access; later mappings get the list when they are made (order/cuda_source.h).

// To be called after peer access to memory of `owner` changed: grants access to its units to the
// devices that have peer access now, and removes it from all others. After an error, which is the
// driver's, a device may lack access.
CUresult share_units(CUcontext owner);
// The same for every context.
CUresult share_all_units();

// The device of the current context, and those that reach that context's memory by peer access, as
// bits; 0 if no context is current.
uint64_t devices_of_current(CUdevice* current);

}  // namespace cistern::shim
