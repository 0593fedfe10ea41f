// SPDX-License-Identifier: Apache-2.0
//
// Short names for what the watched programs do: launches of the test kernels, events, streams.
// Everything EXPECTs success.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support.h"

// Words [0, count) become seed, seed + 1, …
void fill_words(CUstream stream, CUdeviceptr words, size_t count, uint32_t seed);
// Adds the words' sum to *total, atomically.
void sum_words(CUstream stream, CUdeviceptr words, size_t count, CUdeviceptr total);
uint64_t sum_of_filled(size_t count, uint32_t seed);

CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING);
CUdeviceptr new_block(size_t bytes);
// A zeroed 64-bit total, and what it holds once its stream is done.
CUdeviceptr new_total(CUstream stream);
uint64_t read_total(CUstream stream, CUdeviceptr total);

// `later` waits for what `earlier` has been given so far.
void after(CUstream later, CUstream earlier);
