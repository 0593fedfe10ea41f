// SPDX-License-Identifier: Apache-2.0
//
// The lives of memory: what the driver allocated, mapped and registered, and the blocks a pool
// above published (simcuda/watch.h). Live ones are kept, of ended ones the last few thousand, so
// that a report can tell whose bytes it is about. Guarded by exec_mutex().
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "table/calls.h"
#include "watch/clock.h"

namespace simcuda {

struct Life {
  uint64_t address = 0;
  uint64_t bytes = 0;
  std::optional<Call> begun_by{};  // none: a block of a pool
  uint64_t begun = 0;              // numbers of operations
  std::optional<Call> ended_by{};
  uint64_t ended = 0;             // 0: lives
  std::optional<Epoch> end_at{};  // of an end that is ordered on a stream
  uint64_t blocks = 0;            // ever published inside it

  bool holds(uint64_t at, uint64_t length = 1) const {
    return at >= address && length <= bytes && at - address <= bytes - length;
  }
};

class Lives {
 public:
  Life& begin(const Life& life);
  // Null if none begins there.
  Life* at(uint64_t address);
  // The live one that holds this address; null if none does.
  const Life* holding(uint64_t address) const;
  Life* holding(uint64_t address);
  // False if none begins there.
  bool end(uint64_t address, std::optional<Call> by, uint64_t number);
  // The latest ended one that held this address; null if none is remembered.
  const Life* ended_holding(uint64_t address) const;

  const std::map<uint64_t, Life>& live() const { return live_; }

  // One line each, newest first: what these bytes are and were.
  void describe(uint64_t address, uint64_t bytes, const char* kind, std::string& text) const;

 private:
  static constexpr size_t kRemembered = 4096;

  std::map<uint64_t, Life> live_;  // by address
  std::deque<Life> ended_;         // newest last
};

}  // namespace simcuda
