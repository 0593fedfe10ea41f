// SPDX-License-Identifier: Apache-2.0
#include "shim/record/chunks.h"

#include "shim/record/recording.h"
#include "shim/record/reuse_log.h"

namespace cistern::shim {

void record_obtained(const ChunkPlace& place, uint64_t address, uint64_t bytes) {
  if (watching(kWatchReuse))
    log_obtained(address, bytes, reinterpret_cast<uint64_t>(place.context));
  if (!watching(kWatchRecord)) return;
  record({.type = alloc::EventType::obtained,
          .memory = place.memory,
          .address = address,
          .bytes = bytes,
          .context = reinterpret_cast<uint64_t>(place.context),
          .device = static_cast<uint32_t>(place.device)});
}

ChunkRelease::ChunkRelease(alloc::Memory memory, uint64_t address)
    : memory_(memory), address_(address) {
  if (!watching()) [[likely]]
    return;
  if (watching(kWatchRecord)) asked_ns_ = record_clock();
  if (watching(kWatchReuse)) log_released(address);
}

int ChunkRelease::ended(int code) const {
  if (asked_ns_ != 0 && code == alloc::kSuccess) {
    record({.type = alloc::EventType::released,
            .memory = memory_,
            .time_ns = asked_ns_,
            .address = address_});
  }
  return code;
}

}  // namespace cistern::shim
