// SPDX-License-Identifier: Apache-2.0
// The functions of stream_state.cc once more, for programs built with nvcc -default-stream
// per-thread.

#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "tests/sim/cudart/stream_state.cc"
