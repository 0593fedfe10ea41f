// SPDX-License-Identifier: Apache-2.0
// What the benchmarks understand of a trace: how many allocations and frees, and the bytes of each.
#include <cinttypes>
#include <cstdio>

#include "tests/bench/trace.h"

int main(int, char** argv) {
  uint64_t counts[2] = {}, bytes[2] = {};
  for (const cistern::bench::TraceEvent& event : cistern::bench::read_trace(argv[1])) {
    ++counts[event.alloc];
    bytes[event.alloc] += event.bytes;
  }
  std::printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", counts[1], bytes[1], counts[0],
              bytes[0]);
}
