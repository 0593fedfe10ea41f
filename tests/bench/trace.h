// SPDX-License-Identifier: Apache-2.0
//
// The recorded allocations of a training run, for benchmarks: `time_us,op,id,size,stream` lines,
// op being alloc or free.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace cistern::bench {

struct TraceEvent {
  bool alloc;
  uint32_t id;
  uint64_t bytes;
};

// Empty when the file cannot be read.
inline std::vector<TraceEvent> read_trace(const char* path) {
  std::vector<TraceEvent> events;
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return events;
  char line[128], op[8];
  uint32_t id = 0;
  uint64_t bytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "%*u,%7[a-z],%" SCNu32 ",%" SCNu64, op, &id, &bytes) == 3) {
      events.push_back({std::strcmp(op, "alloc") == 0, id, bytes});
    }
  }
  std::fclose(file);
  return events;
}

// Plays the trace once and frees what it leaves; returns the peak of live bytes.
template <typename Pool>
uint64_t replay(const std::vector<TraceEvent>& trace, Pool& pool) {
  struct Block {
    uint64_t address, bytes;
  };
  std::vector<Block> blocks;
  uint64_t live = 0, peak = 0;
  for (const TraceEvent& event : trace) {
    if (event.id >= blocks.size()) blocks.resize(event.id + 1, Block{0, 0});
    Block& block = blocks[event.id];
    if (event.alloc) {
      block = {pool.allocate(event.bytes), event.bytes};
      live += event.bytes;
      peak = std::max(peak, live);
    } else {
      pool.free(block.address);
      live -= block.bytes;
      block = {0, 0};
    }
  }
  for (const Block& block : blocks) {
    if (block.address != 0) pool.free(block.address);
  }
  return peak;
}

}  // namespace cistern::bench
