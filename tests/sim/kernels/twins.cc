// SPDX-License-Identifier: Apache-2.0
// Host twins of tests/preload/programs/kernels.cuh, and of those in tests/gpu/endings.cu: the same
// work on the same parameters, and the ranges it touches. Run by the simulator's stream threads,
// several at once, hence the atomic adds where the kernels have them.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "simcuda/twin.h"

namespace {

using Word64 = unsigned long long;
using simcuda::Ranges;

void add_atomically(Word64* total, Word64 value) {
  __atomic_fetch_add(total, value, __ATOMIC_RELAXED);
}

void add_vectors(const SimcudaLaunch&, const float* a, const float* b, float* sum, int count) {
  for (int i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

void add_vectors_ranges(Ranges& ranges, const float* a, const float* b, float* sum, int count) {
  ranges.reads(a, count);
  ranges.reads(b, count);
  ranges.writes(sum, count);
}

// The elements in the order of the product's loops.
std::vector<float> copy_of(const float* matrix, int rows, int columns, bool transposed) {
  std::vector<float> copy;
  copy.reserve(static_cast<size_t>(rows) * static_cast<size_t>(columns));
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      copy.push_back(transposed ? matrix[column * rows + row] : matrix[row * columns + column]);
    }
  }
  return copy;
}

// Of copies: a sanitizer has seen each access to the matrices, and would look at a copy once for
// each product.
__attribute__((no_sanitize("thread", "address", "undefined"), noinline)) void add_multiple(
    float factor, const float* values, float* sums, int count) {
  for (int i = 0; i < count; ++i) sums[i] += factor * values[i];
}

// Adds each sum up in the kernel's order, but row by row.
void multiply_matrices(const SimcudaLaunch&, const float* a, const float* b, float* product,
                       int rows, int inner, int columns, bool a_transposed, bool b_transposed) {
  const std::vector<float> left = copy_of(a, rows, inner, a_transposed);
  const std::vector<float> right = copy_of(b, inner, columns, b_transposed);
  std::vector<float> sums(static_cast<size_t>(columns));
  for (int row = 0; row < rows; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (int k = 0; k < inner; ++k) {
      add_multiple(left[static_cast<size_t>(row * inner + k)],
                   &right[static_cast<size_t>(k * columns)], sums.data(), columns);
    }
    std::copy(sums.begin(), sums.end(), product + row * columns);
  }
}

void multiply_matrices_ranges(Ranges& ranges, const float* a, const float* b, float* product,
                              int rows, int inner, int columns, bool, bool) {
  ranges.reads(a, static_cast<size_t>(rows) * static_cast<size_t>(inner));
  ranges.reads(b, static_cast<size_t>(inner) * static_cast<size_t>(columns));
  ranges.writes(product, static_cast<size_t>(rows) * static_cast<size_t>(columns));
}

void fill_words(const SimcudaLaunch&, uint32_t* words, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) words[i] = seed + static_cast<uint32_t>(i);
}

void fill_words_ranges(Ranges& ranges, uint32_t* words, size_t count, uint32_t) {
  ranges.writes(words, count);
}

// The delay is the simulated device's, by slow_fill_words_ns().
void slow_fill_words(const SimcudaLaunch& launch, uint32_t* words, size_t count, uint32_t seed,
                     uint32_t) {
  fill_words(launch, words, count, seed);
}

void slow_fill_words_ranges(Ranges& ranges, uint32_t* words, size_t count, uint32_t, uint32_t) {
  ranges.writes(words, count);
}

uint64_t slow_fill_words_ns(uint32_t*, size_t, uint32_t, uint32_t delay_us) {
  return uint64_t{delay_us} * 1000;
}

// Sleeps where the kernel spins: a simulated device takes no processor from the program.
void hold_words(const SimcudaLaunch& launch, uint32_t* words, size_t count, uint32_t seed,
                const uint32_t* go) {
  while (__atomic_load_n(go, __ATOMIC_ACQUIRE) == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  fill_words(launch, words, count, seed);
}

// The host sets *go while the kernel runs: what it reads there is no access to be watched.
void hold_words_ranges(Ranges& ranges, uint32_t* words, size_t count, uint32_t, const uint32_t*) {
  ranges.writes(words, count);
}

void sum_words(const SimcudaLaunch&, const uint32_t* words, size_t count, Word64* total) {
  Word64 sum = 0;
  for (size_t i = 0; i < count; ++i) sum += words[i];
  add_atomically(total, sum);
}

void sum_words_ranges(Ranges& ranges, const uint32_t* words, size_t count, Word64* total) {
  ranges.reads(words, count);
  ranges.updates(total, 1);
}

void slow_sum_words(const SimcudaLaunch& launch, const uint32_t* words, size_t count, Word64* total,
                    uint32_t) {
  sum_words(launch, words, count, total);
}

void slow_sum_words_ranges(Ranges& ranges, const uint32_t* words, size_t count, Word64* total,
                           uint32_t) {
  sum_words_ranges(ranges, words, count, total);
}

uint64_t slow_sum_words_ns(const uint32_t*, size_t, Word64*, uint32_t delay_us) {
  return uint64_t{delay_us} * 1000;
}

void stamp_block(const SimcudaLaunch&, uint32_t* block, size_t words, uint32_t stamp) {
  block[0] = stamp;
  block[words - 1] = stamp;
}

void stamp_block_ranges(Ranges& ranges, uint32_t* block, size_t words, uint32_t) {
  ranges.writes(block, 1);
  ranges.writes(block + words - 1, 1);
}

void check_block(const SimcudaLaunch&, const uint32_t* block, size_t words, uint32_t stamp,
                 Word64* verdict) {
  const Word64 first = block[0];
  const Word64 last = block[words - 1];
  add_atomically(&verdict[0], Word64{first != stamp} + Word64{last != stamp});
  add_atomically(&verdict[1], first + last);
}

void check_block_ranges(Ranges& ranges, const uint32_t* block, size_t words, uint32_t,
                        Word64* verdict) {
  ranges.reads(block, 1);
  ranges.reads(block + words - 1, 1);
  ranges.updates(verdict, 2);
}

void check_words(const SimcudaLaunch&, const uint32_t* words, size_t count, uint32_t seed,
                 Word64* verdict) {
  Word64 wrong = 0, sum = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong += words[i] != seed + static_cast<uint32_t>(i) ? 1 : 0;
    sum += words[i];
  }
  add_atomically(&verdict[0], wrong);
  add_atomically(&verdict[1], sum);
}

void check_words_ranges(Ranges& ranges, const uint32_t* words, size_t count, uint32_t,
                        Word64* verdict) {
  ranges.reads(words, count);
  ranges.updates(verdict, 2);
}

void print_late(const SimcudaLaunch&, uint32_t) { std::puts("printed by the device"); }

// The device lives on; SIMCUDA_LOSE ends it.
void trap_late(const SimcudaLaunch&, uint32_t) {}

void touches_nothing(Ranges&, uint32_t) {}

uint64_t late_ns(uint32_t delay_us) { return uint64_t{delay_us} * 1000; }

using simcuda::timed_twin;
using simcuda::twin;
constexpr SimcudaKernel kKernels[] = {
    twin<add_vectors, add_vectors_ranges>("_Z11add_vectorsPKfS0_Pfi"),
    twin<multiply_matrices, multiply_matrices_ranges>("_Z17multiply_matricesPKfS0_Pfiiibb"),
    twin<fill_words, fill_words_ranges>("_Z10fill_wordsPjmj"),
    timed_twin<slow_fill_words, slow_fill_words_ranges, slow_fill_words_ns>(
        "_Z15slow_fill_wordsPjmjj"),
    timed_twin<slow_sum_words, slow_sum_words_ranges, slow_sum_words_ns>(
        "_Z14slow_sum_wordsPKjmPyj"),
    twin<hold_words, hold_words_ranges>("_Z10hold_wordsPjmjPVKj"),
    twin<sum_words, sum_words_ranges>("_Z9sum_wordsPKjmPy"),
    twin<stamp_block, stamp_block_ranges>("_Z11stamp_blockPjmj"),
    twin<check_block, check_block_ranges>("_Z11check_blockPKjmjPy"),
    twin<check_words, check_words_ranges>("_Z11check_wordsPKjmjPy"),
    timed_twin<print_late, touches_nothing, late_ns>("_Z10print_latej"),
    timed_twin<trap_late, touches_nothing, late_ns>("_Z9trap_latej"),
};

}  // namespace

extern "C" const SimcudaKernel* simcuda_kernels(size_t* count) {
  *count = sizeof kKernels / sizeof kKernels[0];
  return kKernels;
}
