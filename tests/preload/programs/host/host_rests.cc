// SPDX-License-Identifier: Apache-2.0
// Idle device memory goes back soon, also where the thread that sees to it rested.
// What the driver holds is read from the simulator's trace.
#include <cstdlib>
#include <fstream>
#include <string>

#include "../driver_codes.h"
#include "../test_clock.h"

namespace {

constexpr uint64_t kSoonMs = 400;  // it looks by itself once a second

int freed() {
  int calls = 0;
  std::ifstream file(std::getenv("SIMCUDA_TRACE"));
  for (std::string line; std::getline(file, line);) calls += line.starts_with("cuMemFree");
  return calls;
}

// From the program's free to the driver's, by a clock that waits for whatever is done meanwhile.
uint64_t ms_to_go_back() {
  const int before = freed();
  CUdeviceptr block = 0;
  if (cuMemAlloc(&block, 20 * kMiB) != CUDA_SUCCESS) return kSoonMs;
  cuMemFree(block);
  uint64_t ms = 0;
  for (; freed() == before && ms < 10 * kSoonMs; ms += 5) test_clock::live_through(5, 1);
  return ms;
}

}  // namespace

// After so long a pause the thread rests, and has just begun to.
int main() {
  use_device(0);
  test_clock::stop();
  for (int i = 0; i < 3; ++i) {
    test_clock::live_through(/*ms=*/450, /*steps=*/45);
    const uint64_t ms = ms_to_go_back();
    std::printf("went back soon: %s\n", ms < kSoonMs ? "yes" : "NO");
    if (std::getenv("SAY") != nullptr) std::printf("%lu ms\n", static_cast<unsigned long>(ms));
  }
  return 0;
}
