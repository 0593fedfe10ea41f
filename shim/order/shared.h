// SPDX-License-Identifier: Apache-2.0
// What the pools of all contexts of the process share. Any thread.
#pragma once

#include <cstdint>

#include "allocator/shared.h"

namespace cistern::shim {

alloc::Shared& shared();

// What turned up without a beginning: no hook saw it made (contexts/unseen.h, streams/streams.h).
// Counted for the report; the first of each kind is told in the log.
enum class Unseen : uint8_t { kContext, kStream };
void noticed(Unseen what);
uint64_t times_noticed(Unseen what);

}  // namespace cistern::shim
