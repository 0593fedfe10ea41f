// SPDX-License-Identifier: Apache-2.0
// Idle device memory goes back soon, also where the thread that sees to it rested.
// What the driver holds is read from the simulator's trace.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "../driver_codes.h"
#include "../watch_time.h"

namespace {

constexpr useconds_t kMs = 1000;
constexpr double kLongS = 20;  // also for a machine under load

int freed() {
  int calls = 0;
  std::ifstream file(std::getenv("SIMCUDA_TRACE"));
  for (std::string line; std::getline(file, line);) calls += line.starts_with("cuMemFree");
  return calls;
}

// From the program's free to the driver's.
double seconds_to_go_back() {
  const int before = freed();
  CUdeviceptr block = 0;
  if (cuMemAlloc(&block, 20 * kMiB) != CUDA_SUCCESS) return kLongS;
  const Stopwatch watch;
  cuMemFree(block);
  while (freed() == before && watch.seconds() < kLongS) usleep(5 * kMs);
  return watch.seconds();
}

}  // namespace

// After so long a pause the thread rests, and has just begun to.
int main() {
  use_device(0);
  double fastest = kLongS;
  for (int i = 0; i < 3; ++i) {
    usleep(450 * kMs);
    fastest = std::min(fastest, seconds_to_go_back());
  }
  std::printf("went back soon: %s\n", fastest < 0.4 ? "yes" : "NO");
  if (std::getenv("SAY") != nullptr) std::printf("%.3f s\n", fastest);
  return 0;
}
