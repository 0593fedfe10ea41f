// SPDX-License-Identifier: Apache-2.0
// Blocks that are filled with their own number and checked when they are freed, so that blocks
// which share a byte give another sum. Kernels are not needed: fills and copies are work, too. Any
// thread.
#pragma once

#include <atomic>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include "../driver_codes.h"

namespace {

struct Block {
  CUdeviceptr address;
  size_t bytes;
  unsigned number;
};

std::atomic<unsigned> g_number = 0;
std::atomic<int> g_wrong = 0;

void expect(CUresult result) { g_wrong += result != CUDA_SUCCESS; }

Block get(size_t bytes, CUstream stream = nullptr) {
  Block block{0, bytes, ++g_number};
  expect(cuMemAlloc(&block.address, bytes));
  expect(cuMemsetD32Async(block.address, block.number, bytes / 4, stream));
  return block;
}

void check(const Block& block) {
  unsigned ends[2] = {};
  expect(cuMemcpyDtoH(&ends[0], block.address, sizeof ends[0]));
  expect(cuMemcpyDtoH(&ends[1], block.address + block.bytes - 4, sizeof ends[1]));
  g_wrong += ends[0] != block.number || ends[1] != block.number;
}

void give_back(const Block& block) {
  check(block);
  expect(cuMemFree(block.address));
}

// Plans of so many MiB that the log tells of; without one there is nothing to wait for.
int plans_told(double least_mib = 0, double most_mib = HUGE_VAL) {
  const char* path = std::getenv("CISTERN_LOG_FILE");
  std::ifstream log(path == nullptr ? "" : path);
  if (!log) return INT_MAX;
  const std::string told = "a plan for them takes ";
  int count = 0;
  for (std::string line; std::getline(log, line);) {
    const size_t at = line.find(told);
    if (at == line.npos) continue;
    const double mib = std::atof(line.c_str() + at + told.size());
    count += mib >= least_mib && mib <= most_mib;
  }
  return count;
}

}  // namespace
