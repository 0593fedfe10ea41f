// SPDX-License-Identifier: Apache-2.0
//
// Work that does not keep its place in its stream: a kernel that may begin before the one in front
// of it has ended, and copies that have no order among themselves. It runs on helpers of the
// stream; what the stream is given next comes behind all of it. Any thread.
#pragma once

#include <vector>

#include "exec/stream.h"
#include "exec/work.h"

namespace simcuda {

// A kernel launched with programmatic stream serialization. It begins as early as CUDA allows: with
// the kernel in front of it, as if that one let its dependents go at once.
CUresult submit_early(const StreamRef& stream, Work kernel);

// A piece of a batch.
struct Unordered {
  Work read{};  // what is done during the call, whatever the stream has to do first; may be empty
  Work work{};
  Wait wait = Wait::kNo;
};
// Each piece comes behind what the stream was given before, and behind no other piece.
CUresult submit_unordered(const StreamRef& stream, std::vector<Unordered> pieces);

}  // namespace simcuda
