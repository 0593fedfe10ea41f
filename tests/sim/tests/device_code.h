// SPDX-License-Identifier: Apache-2.0
//
// Short names for what the watched programs do: launches of the test kernels, events, streams.
// Everything EXPECTs success.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support.h"

// Words [0, count) become seed, seed + 1, …
void fill_words(CUstream stream, CUdeviceptr words, size_t count, uint32_t seed);
// The same by a launch that may begin before the kernel in front of it in its stream has ended.
void fill_words_early(CUstream stream, CUdeviceptr words, size_t count, uint32_t seed);
// Adds the words' sum to *total, atomically.
void sum_words(CUstream stream, CUdeviceptr words, size_t count, CUdeviceptr total);
uint64_t sum_of_filled(size_t count, uint32_t seed);

// A zeroed 64-bit total, and what it holds once its stream is done.
CUdeviceptr new_total(CUstream stream);
uint64_t read_total(CUstream stream, CUdeviceptr total);

// Copies of so many bytes that have no order among themselves, from [0] of each pair to [1].
using Pair = std::array<CUdeviceptr, 2>;
void copy_unordered(CUstream stream, const std::vector<Pair>& copies, size_t bytes,
                    CUmemcpySrcAccessOrder order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);

// `later` waits for what `earlier` has been given so far.
void after(CUstream later, CUstream earlier);
