// SPDX-License-Identifier: Apache-2.0
// The driver's errors that come before it looks at a size or an address: a call that a pool serves
// alone must fail if the driver's would. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// The driver refuses every call about memory without a context, in one that is gone or whose work
// died, and inside a host function on a stream: its error then, else CUDA_SUCCESS. `owner` is the
// context of the block in question.
CUresult refusal(Context& owner);
// The same where no block of ours is in question.
CUresult refusal_here();

// To be called while something captures: what the driver answers this thread to a call as unsafe as
// cuMemFree (cuda.h, cuThreadExchangeStreamCaptureMode). Where it refuses, the capture becomes
// invalid, as it would by the call itself.
CUresult ask_for_unsafe_call();

// What the driver would say of an allocation, other than a stream-ordered one, for which there is
// no room: a context whose work died, or a capture that forbids the call, comes first.
CUresult no_room();
// The same of physical memory, which a capture does not forbid to make.
CUresult no_room_for_units();

}  // namespace cistern::shim
