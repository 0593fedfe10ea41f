// SPDX-License-Identifier: Apache-2.0
// The contexts for which no number is left (context_slot.h). The driver alone serves their memory.
// Their work may still touch memory of the others, so together they are one party of reclamation,
// with a number that no context gets. No mark is ever made in them: the party has passed a ticket
// once each of them was synchronised after it, as seen by a hook, or has ended.
//
// A context is here or has a slot, never both, and stays where it is until it ends. context_life.cc
// adds and removes contexts, one thread at a time; any thread may call the queries and
// crowd_synchronised(). The table holds kMostInCrowd contexts. If there is one more, no memory
// becomes clean any more (Reclaim::freeze). One lock, never held around a driver call.
#pragma once

#include <cstdint>

#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"
#include "shim/order/contexts/context_slot.h"

namespace cistern::shim {

inline constexpr int kMostInCrowd = 4096;

// Whether there is any such context; whether this is one. `id`, if given: the driver's for it, or
// 0.
bool crowd_lives();
bool in_crowd(CUcontext handle, uint64_t* id = nullptr);

// Adds a context for which there was no number; false: there is no room. The first one begins the
// party.
bool join_crowd(CUcontext handle, uint64_t id);
// One ended. True if it was the last, and the party is over. Does nothing if the handle is another
// context's by now.
bool leave_crowd(CUcontext handle, uint64_t id);
// The program synchronised it; `ticket` was closed before.
void crowd_synchronised(CUcontext handle, alloc::Ticket ticket);

void reset_crowd_after_fork();

}  // namespace cistern::shim
