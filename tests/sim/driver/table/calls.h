// SPDX-License-Identifier: Apache-2.0
//
// The table of driver calls (calls.def): one row per exported symbol. Exports, trace, faults,
// latencies and cuGetProcAddress all read it, so a call added there is known everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simcuda {

// Which default stream a symbol means; decides what cuGetProcAddress hands out for its flags.
enum class StreamKind : uint8_t { kAny, kLegacy, kPtds, kPtsz };

constexpr bool per_thread(StreamKind kind) {
  return kind == StreamKind::kPtds || kind == StreamKind::kPtsz;
}

enum Trait : uint8_t {
  kPlain = 0,
  kTraced = 1,   // allocates, frees, maps, fills, copies, records, launches or synchronises
  kAnytime = 2,  // answered before cuInit, after fork and inside host callbacks
  kUnsafe = 4,   // "potentially unsafe" during a capture (cuThreadExchangeStreamCaptureMode)
  kOrdered = 8,  // its work happens on a stream, and takes its SIMCUDA_LATENCY there
};

enum class Call : uint16_t {
#define CALL(symbol, name, version, kind, traits) symbol,
#include "table/calls.def"
  kCount
};

inline constexpr size_t kCallCount = static_cast<size_t>(Call::kCount);

struct CallInfo {
  const char* symbol;  // exact exported name
  const char* name;    // name without version and stream suffix
  int version;         // CUDA version that introduced this variant
  StreamKind kind;
  uint8_t traits;
  void* address;
};

// Row of a call the simulator acts on.
const CallInfo& info(Call call);

// Every exported call: the simulated ones, then those that only answer "not supported".
struct CallTable {
  const CallInfo* begin_;
  const CallInfo* end_;
  const CallInfo* begin() const { return begin_; }
  const CallInfo* end() const { return end_; }
};
CallTable simulated_calls();
CallTable unsupported_calls();

}  // namespace simcuda
