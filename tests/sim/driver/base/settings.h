// SPDX-License-Identifier: Apache-2.0
//
// The SIMCUDA_* environment variables, read once at the first driver call. Immutable afterwards
// and leaked, so that every thread may read them at any time, also after main.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cuda.h"

namespace simcuda {

struct FailRule {
  std::string call;  // exact symbol, or the name without suffixes: then every variant
  uint64_t nth;      // 1-based use that fails; 0: every use
  CUresult code;
};

struct LatencyRule {
  std::string call;
  uint64_t ns;
};

struct Settings {
  std::vector<uint64_t> memory_bytes{uint64_t{8192} << 20};  // one entry per device
  std::string trace_file;                                    // empty: no trace
  std::vector<std::string> kernel_libraries;
  std::vector<FailRule> fail;
  std::vector<LatencyRule> latency;
  std::string error;  // first setting that could not be understood, empty if none
};

const Settings& settings();

// What settings() does, over explicit texts (null: not set): for tests.
struct SettingTexts {
  const char* devices = nullptr;
  const char* memory_mb = nullptr;
  const char* trace = nullptr;
  const char* kernels = nullptr;
  const char* fail = nullptr;
  const char* latency = nullptr;
};
Settings parse_settings(const SettingTexts& texts);

}  // namespace simcuda
