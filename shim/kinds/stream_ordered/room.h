// SPDX-License-Identifier: Apache-2.0
// Room for stream-ordered memory. Before the driver returns out of memory, it waits for all work of
// the context, since frees that streams have not reached yet may make room. That work may wait for
// the program's next call. So the driver must not lack memory that pools keep idle. It goes back
// before the driver is asked: first memory that no work can touch; then, if the device still lacks
// memory, the rest, and what other pools of the driver keep because of us. Any thread; no lock is
// held.
#pragma once

#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

// Before the driver is asked for `bytes` on a stream that does not capture, from a pool of its own
// (nullptr: the current one). Nothing is done where our pools keep nothing, or the driver's has the
// memory. What the device has free the driver is not asked at each call: as long as less than half
// of its last answer was asked for since, it is enough. What no work can touch goes back without a
// wait. Only where the request is more than the device has then, work after a free is waited for,
// for as long as the driver might, and other work for 0.2 s.
void make_room_for_ordered(CUstream stream, CUmemoryPool pool, uint64_t bytes);

}  // namespace cistern::shim
