// SPDX-License-Identifier: Apache-2.0
// The functions of streams.cc once more, for programs built with nvcc -default-stream per-thread:
// this macro makes NVIDIA's headers rename them.

#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "tests/sim/cudart/streams.cc"
