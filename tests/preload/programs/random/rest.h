// SPDX-License-Identifier: Apache-2.0
// The program rests between two rounds, until memory that lies idle is the driver's again.
//
// It frees one more block and waits until the driver was given something back: at once where that
// is a free of the driver's, later where a pool keeps the block until it was idle long enough. That
// is seen in the simulator's trace; without one there is no rest. Nothing in here is a time, so a
// slow machine makes the rest longer and nothing else; what never ends hangs, as run-pair tells.
#pragma once

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "worker.h"

namespace random_work {

// Calls so far by which the driver took memory back. A line is whole or not there.
inline uint64_t frees_of_the_driver(const char* trace) {
  uint64_t frees = 0;
  std::ifstream file(trace);
  for (std::string line; std::getline(file, line);) {
    frees += line.starts_with("cuMemFree") && line.find(" -> 0 ") != line.npos ? 1 : 0;
  }
  return frees;
}

// The driver may refuse what is asked of it now and then: how often is not told, it is chance.
inline void rest(const Place& place, Tally& tally) {
  constexpr size_t kBytes = size_t{8} << 20;  // as large as a chunk, and beyond what garbage may be
  const char* trace = std::getenv("SIMCUDA_TRACE");
  if (trace == nullptr) return;
  tally.need("cuCtxSetCurrent", cuCtxSetCurrent(place.context));
  CUdeviceptr block = 0;
  // What the program still holds, such as exported blocks, may leave no such room under a cap.
  for (int tries = 1; cuMemAlloc(&block, kBytes) != CUDA_SUCCESS; ++tries) {
    if (tries == 1000) return tally.hold("what lay idle went back", true);
    std::this_thread::yield();
  }
  tally.need("cuCtxSynchronize", cuCtxSynchronize());
  const uint64_t before = frees_of_the_driver(trace);
  while (cuMemFree(block) != CUDA_SUCCESS) std::this_thread::yield();
  while (frees_of_the_driver(trace) == before) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  tally.hold("what lay idle went back", true);
}

}  // namespace random_work
