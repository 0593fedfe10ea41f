// SPDX-License-Identifier: Apache-2.0
//
// The SIMCUDA_* environment variables, read once at the first driver call. Immutable afterwards
// and leaked, so that every thread may read them at any time, also after main.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fault_rules.h"

namespace simcuda {

// What the order oracle does, as bits (watch/oracle.h).
enum OrderMode : uint8_t { kJudged = 1, kRacyProgram = 2, kKernelsMeet = 4 };

enum class RaceMode : uint8_t { kOff, kReport, kAbort };

// What cuMemFreeAsync does with memory of cuMemAlloc.
enum class FreeAsync : uint8_t { kHelps, kLate, kRefused };

// What the devices cannot do, as bits.
enum Lack : uint8_t { kLacksVirtualMemory = 1, kLacksFiles = 2, kLacksRdma = 4 };

struct Settings {
  std::vector<uint64_t> memory_bytes{uint64_t{8192} << 20};  // one entry per device
  uint32_t pitch_bytes = 512;                                // rows of cuMemAllocPitch
  std::string trace_file;                                    // empty: no trace
  std::vector<std::string> kernel_libraries;
  bool tells_missing_kernels = false;
  FaultRules faults;
  RaceMode races = RaceMode::kOff;
  uint8_t order = 0;       // 0: nothing is judged
  std::string races_file;  // empty: stderr
  bool leaks = false;
  FreeAsync free_async = FreeAsync::kHelps;
  bool free_locks = false;  // a free that waits holds its context's lock
  uint8_t lacks = 0;
  uint64_t pool_step_bytes = uint64_t{2} << 20;  // in which memory pools take memory
  uint32_t queue = 0;            // pieces of work that a stream holds; 0: any number
  std::optional<uint64_t> seed;  // none: a thread for each stream
  bool virtual_clock = false;
  std::string error;  // first setting that could not be understood, empty if none
};

const Settings& settings();

}  // namespace simcuda
