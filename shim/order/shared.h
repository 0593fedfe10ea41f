// SPDX-License-Identifier: Apache-2.0
// What the pools of all contexts of the process share, and what the log says of the driver calls
// made for them. Any thread.
#pragma once

#include <cstdint>
#include <cstdio>

#include "allocator/shared.h"
#include "shim/process/log.h"

namespace cistern::shim {

alloc::Shared& shared();

// What turned up without a beginning: no hook saw it made (contexts/context_life.h,
// streams/stream_registry.h). Counted for the report; the first of each kind is told in the log.
enum class Unseen : uint8_t { kContext, kStream };
void noticed(Unseen what);
uint64_t times_noticed(Unseen what);

// The sources turn the pools' decisions into driver calls (cuda_source.h, cuda_units.h,
// contexts/pinned_pools.h). Each call is logged here at level debug. Returns `code`, what the
// source answers. Bytes 0: the call names none.
inline int told(const char* call, uint64_t address, uint64_t bytes, int code) {
  if (log_enabled(config::LogLevel::kDebug)) [[unlikely]] {
    using Number = unsigned long long;
    char size[32] = "";
    if (bytes != 0) std::snprintf(size, sizeof size, " bytes=%llu", static_cast<Number>(bytes));
    log(config::LogLevel::kDebug, "pool: %s address=0x%llx%s -> %d", call,
        static_cast<Number>(address), size, code);
  }
  return code;
}

}  // namespace cistern::shim
