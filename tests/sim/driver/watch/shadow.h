// SPDX-License-Identifier: Apache-2.0
//
// Who touched which bytes, as far as it can still matter: by address, whatever allocations and
// blocks the bytes belonged to meanwhile. Two touches conflict if they are not ordered and may not
// be swapped: everything but two reads, or two atomic updates. Not thread-safe: the owner locks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/cuda.h"
#include "table/calls.h"
#include "watch/clock.h"
#include "watch/touch.h"

namespace simcuda {

// A call as reports show it.
struct Operation {
  uint64_t number;  // in the order of the program's calls
  Call call;
  const char* kernel;  // null unless it is a launch
  uint64_t stream_id;  // 0: the host
  uint64_t context_id;
  uint64_t thread;
};

struct Record {
  std::shared_ptr<const Operation> by;
  Epoch at;
  Touch touch;
};

// Bytes two conflicting touches have in common, and the earlier one.
struct Conflict {
  uint64_t address;
  uint64_t bytes;
  Record earlier;
};

class Shadow {
 public:
  // Notes the touch, which knows what `clock` covers; returns what it conflicts with, at most one
  // entry for each earlier operation.
  std::vector<Conflict> touch(uint64_t address, uint64_t bytes, const Record& record,
                              const VectorClock& clock);

  // A write no longer stands for what it is not ordered with: each pair of touches is compared.
  void keep_unordered(bool keep) { keep_unordered_ = keep; }

  // The bytes begin a new life: nothing said about them matters any more.
  void forget(uint64_t address, uint64_t bytes);

  // Drops what everything to come is ordered after.
  void drop_covered(const VectorClock& everything);

  size_t size() const { return segments_.size(); }

 private:
  struct Segment {
    uint64_t end;
    std::vector<Record> records;
  };
  using Segments = std::map<uint64_t, Segment>;

  // The first segment at or after `address`, after one that spans it has been cut in two.
  Segments::iterator cut(uint64_t address);

  bool keep_unordered_ = false;
  Segments segments_;  // by start; no two overlap
};

}  // namespace simcuda
