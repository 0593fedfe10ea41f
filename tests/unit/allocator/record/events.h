// SPDX-License-Identifier: Apache-2.0
// Events for tests of what records and what reads recordings.
#pragma once

#include "allocator/record/event.h"

namespace cistern::alloc::test {

inline Event allocation(uint64_t address, uint64_t bytes, uint32_t site = 0) {
  return {.type = EventType::allocated,
          .memory = Memory::linear,
          .time_ns = 0,
          .address = address,
          .bytes = bytes,
          .stream = 0,
          .context = 0,
          .thread = 1,
          .device = 0,
          .site = site,
          .range = 0,
          .phase = 0,
          .code = 0};
}

// The free of a block by the thread that allocated it, in the same phase.
inline Event free_of(Event block) {
  block.type = EventType::freed;
  block.bytes = 0;
  return block;
}

inline bool same(const Event& a, const Event& b) {
  return a.type == b.type && a.memory == b.memory && a.time_ns == b.time_ns &&
         a.address == b.address && a.bytes == b.bytes && a.stream == b.stream &&
         a.context == b.context && a.thread == b.thread && a.device == b.device &&
         a.site == b.site && a.range == b.range && a.phase == b.phase && a.code == b.code;
}

}  // namespace cistern::alloc::test
