// SPDX-License-Identifier: Apache-2.0
// What the files that are compiled twice share: the driver's functions by the rule for stream 0
// that the including file has (streams.cc). In an unnamed namespace, as it is another one for each
// rule.
#pragma once

#include "tests/sim/cudart/state.h"

namespace simcudart {
namespace {

inline const StreamCalls& stream_calls(const Driver& d) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return d.per_thread;
#else
  return d.legacy;
#endif
}

template <typename Work>
cudaError_t on_stream(Work work) {
  return in_context([&](const Driver& d) { return work(stream_calls(d)); });
}

}  // namespace
}  // namespace simcudart
