// SPDX-License-Identifier: Apache-2.0
// The functions of symbols.cc once more, for programs built with nvcc -default-stream per-thread.

#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "tests/sim/cudart/symbols.cc"
