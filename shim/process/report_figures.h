// SPDX-License-Identifier: Apache-2.0
// The figures of the report at exit. They are kept in folders above this one, which hand them down
// (order/contexts/device_report.h).
#pragma once

#include <cstdint>

#include "allocator/context_pool.h"
#include "allocator/host/host_pool.h"

namespace cistern::shim {

// One device's figures at this moment.
struct DeviceReport {
  int ordinal;
  uint64_t total_bytes;
  const alloc::Ledger* ledger;
  const alloc::Cap* cap;
  const alloc::Garbage* garbage;  // nullptr: the settings keep none back
  alloc::StrategyKind strategy;
  uint64_t allocations, frees;  // calls of the program that pools answered
  alloc::Usage usage;
};

// The pools of page-locked memory, of all contexts.
struct PinnedReport {
  const alloc::Ledger* ledger;
  uint64_t limit_bytes;
  uint64_t allocations, frees;  // calls of the program that pools answered
  alloc::Usage usage;
};

struct ProcessReport {
  uint64_t events_recorded, events_queried;
  // Describes the first used device whose number is at least `ordinal`; false if there is none.
  bool (*next_device)(int ordinal, DeviceReport* out);
  // What malloc got; false if it is not Cistern's.
  bool (*host_memory)(alloc::host::HostUsage* out);
  // False where no pinned memory was pooled.
  bool (*pinned_memory)(PinnedReport* out);
};

}  // namespace cistern::shim
