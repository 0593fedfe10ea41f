// SPDX-License-Identifier: Apache-2.0
// Who holds memory now (allocator/record/tallies.h), for the report, the message about a lack of
// memory, and who frees what. Any thread; one lock.
#pragma once

#include "allocator/record/tallies.h"

namespace cistern::shim {

void holders_allocated(const alloc::Event& event);
// The block at the address of the event is about to be freed: it goes to `block`; false if it is
// not known.
bool holders_freed(const alloc::Event& event, alloc::Event* block);
// It was not freed after all.
void holders_not_freed(const alloc::Event& block);
void holders_context_ended(const alloc::Event& event);

void reset_holders_after_fork();

}  // namespace cistern::shim
