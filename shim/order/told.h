// SPDX-License-Identifier: Apache-2.0
// What the pools decide becomes a call of the driver in the sources (cuda_source.h, cuda_units.h):
// each is told here, for the log at level debug. Any thread.
#pragma once

#include <cstdint>

#include "shim/process/log.h"

namespace cistern::shim {

// Returns `code`, what the source answers.
inline int told(const char* call, uint64_t address, uint64_t bytes, int code) {
  if (log_enabled(config::LogLevel::kDebug)) [[unlikely]] {
    log(config::LogLevel::kDebug, "pool: %s address=0x%llx bytes=%llu -> %d", call,
        static_cast<unsigned long long>(address), static_cast<unsigned long long>(bytes), code);
  }
  return code;
}

}  // namespace cistern::shim
