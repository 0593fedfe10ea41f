// SPDX-License-Identifier: Apache-2.0
// The functions of array_copies.cc once more, as streams_per_thread.cc has those of streams.cc.

#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "tests/sim/cudart/array_copies.cc"
