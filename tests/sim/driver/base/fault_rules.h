// SPDX-License-Identifier: Apache-2.0
//
// What shall go wrong, take time and take memory: the values of SIMCUDA_FAIL, SIMCUDA_LATENCY,
// SIMCUDA_TAKES, SIMCUDA_PRESSURE and SIMCUDA_LOSE as data. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda.h"

namespace simcuda {

struct FailRule {
  std::string call;         // exact symbol, or the name without suffixes: then every variant
  uint64_t nth = 0;         // 1-based use that fails; 0: every use, if no probability is given
  double probability = 0;   // of each use
  uint64_t seed = 0;        // of the probability
  bool after_work = false;  // the work is done, and the caller is told it failed
  CUresult code = CUDA_SUCCESS;
};

struct LatencyRule {
  std::string call;
  uint64_t ns = 0;
  bool after_work = false;  // other threads see what the call did before its caller goes on
};

// Device memory a call takes for the driver's own use.
struct TakeRule {
  std::string call;
  uint64_t bytes = 0;
};

// Memory another process holds from one traced call to before another.
struct PressureRule {
  int device = 0;
  uint64_t bytes = 0;
  uint64_t from = 0;
  uint64_t to = 0;
};

// A device that is lost after a number of traced calls; or, with a call's name, a context whose
// work died: the one in which the nth use of the call was made.
struct LoseRule {
  int device = 0;
  uint64_t after = 0;
  std::string call;
  uint64_t nth = 0;
  CUresult code = CUDA_ERROR_LAUNCH_FAILED;
};

struct FaultRules {
  std::vector<FailRule> fail;
  std::vector<LatencyRule> latency;
  std::vector<TakeRule> takes;
  std::vector<PressureRule> pressure;
  std::vector<LoseRule> lose;
};

// Each adds one comma-separated element to the rules; false if it cannot be understood.
bool add_fail(std::string_view text, FaultRules& rules);
bool add_latency(std::string_view text, FaultRules& rules);
bool add_take(std::string_view text, FaultRules& rules);
bool add_pressure(std::string_view text, FaultRules& rules);
bool add_lose(std::string_view text, FaultRules& rules);

}  // namespace simcuda
