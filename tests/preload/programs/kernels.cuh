// SPDX-License-Identifier: Apache-2.0
// The kernels of the test programs. Each has a host twin in tests/sim/kernels, which must do the
// same; all are exact in integers (or in small floats), so results do not depend on the device.
#pragma once

#include <cstddef>
#include <cstdint>

__global__ void add_vectors(const float* a, const float* b, float* sum, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

// product = a * b: matrices of rows x inner and inner x columns floats. A flag says which of the
// two lies transposed in its memory.
__global__ void multiply_matrices(const float* a, const float* b, float* product, int rows,
                                  int inner, int columns, bool a_transposed, bool b_transposed) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  const int row = i / columns, column = i % columns;
  float sum = 0;
  for (int k = 0; k < inner; ++k) {
    sum += (a_transposed ? a[k * rows + row] : a[row * inner + k]) *
           (b_transposed ? b[column * inner + k] : b[k * columns + column]);
  }
  product[i] = sum;
}

// words[i] = seed + i
__global__ void fill_words(uint32_t* words, size_t count, uint32_t seed) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = seed + static_cast<uint32_t>(i);
  }
}

// fill_words() that starts writing only after `delay_us`, so that it is certainly still pending
// when the host goes on.
__global__ void slow_fill_words(uint32_t* words, size_t count, uint32_t seed, uint32_t delay_us) {
  const long long start = clock64();
  while (clock64() - start < 1500ll * delay_us) {
  }
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = seed + static_cast<uint32_t>(i);
  }
}

// fill_words() once the host has set *go, a word of pinned memory. One thread.
__global__ void hold_words(uint32_t* words, size_t count, uint32_t seed,
                           const volatile uint32_t* go) {
  while (*go == 0) {
  }
  for (size_t i = 0; i < count; ++i) words[i] = seed + static_cast<uint32_t>(i);
}

// *total += sum of words, which it reads only after `delay_us`. One thread.
__global__ void slow_sum_words(const uint32_t* words, size_t count, unsigned long long* total,
                               uint32_t delay_us) {
  const long long start = clock64();
  while (clock64() - start < 1500ll * delay_us) {
  }
  unsigned long long sum = 0;
  for (size_t i = 0; i < count; ++i) sum += words[i];
  atomicAdd(total, sum);
}

// *total += sum of words
__global__ void sum_words(const uint32_t* words, size_t count, unsigned long long* total) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  unsigned long long sum = 0;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    sum += words[i];
  }
  atomicAdd(total, sum);
}

// Marks the first and the last word of a block. One thread.
__global__ void stamp_block(uint32_t* block, size_t words, uint32_t stamp) {
  block[0] = stamp;
  block[words - 1] = stamp;
}

// verdict[0] += words that lost the mark, verdict[1] += what they hold. One thread.
__global__ void check_block(const uint32_t* block, size_t words, uint32_t stamp,
                            unsigned long long* verdict) {
  const unsigned long long first = block[0];
  const unsigned long long last = block[words - 1];
  atomicAdd(&verdict[0], (first != stamp) + (last != stamp));
  atomicAdd(&verdict[1], first + last);
}

// verdict[0] += words that are not seed + i, verdict[1] += what they hold
__global__ void check_words(const uint32_t* words, size_t count, uint32_t seed,
                            unsigned long long* verdict) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const unsigned long long held = words[i];
    atomicAdd(&verdict[0], held != seed + static_cast<uint32_t>(i));
    atomicAdd(&verdict[1], held);
  }
}
