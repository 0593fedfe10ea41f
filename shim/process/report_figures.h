// SPDX-License-Identifier: Apache-2.0
// The figures of the report at exit. Folders above this one keep them and hand them down
// (order/contexts/all_contexts.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "allocator/context_pool.h"
#include "allocator/host/host_pool.h"
#include "allocator/record/phases.h"
#include "allocator/record/tallies.h"
#include "config/policy.h"
#include "shim/process/free_counts.h"

namespace cistern::shim {

// One device's figures at this moment.
struct DeviceReport {
  int ordinal;
  uint64_t total_bytes;
  const alloc::Ledger* ledger;
  const alloc::Cap* cap;
  const alloc::Garbage* garbage;  // nullptr: the settings do not delay frees
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

struct Holder {
  uint32_t number;  // of the call site or the range
  alloc::Tally tally;
};

// Which call sites, ranges and phases hold memory. Number 0 stands for all that are not known.
struct HoldersReport {
  // Finds the first place (a device, or host memory) from `from` on in which anything was
  // allocated; false if there is none.
  bool (*next_place)(uint32_t from, uint32_t* place, alloc::Tally* total);
  // Writes the first `most` holders in this order, without those that have nothing. Returns how
  // many were written.
  int (*top)(uint32_t place, alloc::TallyBy by, alloc::TallyOrder order, Holder* out, int most);
  void (*name)(alloc::TallyBy by, uint32_t number, char* out, size_t size);
  // One level of a site's call stack, 0 is the innermost; false beyond the outermost.
  bool (*level)(uint32_t site, int level, char* out, size_t size);
  // The n-th name of phases, from 1 on; false beyond the last.
  bool (*phase)(uint32_t n, const char** name, alloc::Phases::Figures* out);
};

// An entry of a setting that chooses requests by call site or range.
struct SiteEntry {
  const char* setting;
  std::string_view text;  // as in the setting; for a switch, the glob that it stands for
  uint64_t matched;       // requests
};

// IPC of blocks inside chunks, by tokens (ipc/token.h). This process made `exported` tokens, and
// `answered` importers that opened one. It `opened` tokens of other processes. It could not open
// `unanswered` of them, because no process under Cistern answered.
struct IpcReport {
  uint64_t exported, answered, opened, unanswered;
};

// The driver's memory pools that keep memory because of CISTERN_MEMPOOL_THRESHOLD: how many there
// were, the most unused memory that all of them kept together, and the trims.
struct PoolsReport {
  uint64_t adopted, kept_peak_bytes, trims, trimmed_bytes;
};

// Functions of the driver that Cistern does not know, and the consequences.
struct UnknownReport {
  uint64_t in_driver;  // that the driver exports
  uint64_t looked_up, called;
  uint64_t linked;      // objects that are linked with one
  const char* careful;  // why the process is careful; nullptr: it is not
  // Why work goes unseen, and why all work counts as visible to the host; nullptr: it does not.
  const char *unseen_work, *all_visible;
};

struct ProcessReport {
  uint64_t events_recorded, events_queried;
  // Describes the first used device whose number is at least `ordinal`; false if there is none.
  bool (*next_device)(int ordinal, DeviceReport* out);
  // What malloc got from the pool; false if malloc is not Cistern's.
  bool (*host_memory)(alloc::host::HostUsage* out);
  // False where no pinned memory was pooled.
  bool (*pinned_memory)(PinnedReport* out);
  const HoldersReport* holders;  // nullptr: CISTERN_SITES is not set
  // The entry of this number, from 0 on; false: there are no more.
  bool (*site_entry)(int index, SiteEntry* out);
  IpcReport ipc;
  // Contexts and streams whose creation no hook saw.
  uint64_t unseen_contexts, unseen_streams;
  UnknownReport unknown;
  const FreeCounts* frees;
  uint64_t ran_ns = 0;  // since Cistern was loaded; write_report() sets it
  PoolsReport driver_pools = {};
};

// Printed with %lu.
static_assert(std::is_same_v<uint64_t, unsigned long>);

inline double ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

inline double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Allocations that needed no driver call, and driver calls with and without the pools.
inline uint64_t hits(const DeviceReport& d) {
  const uint64_t obtained = d.ledger->obtained.get();
  return d.allocations > obtained ? d.allocations - obtained : 0;
}
inline uint64_t driver_calls(const DeviceReport& d) {
  const alloc::Ledger& l = *d.ledger;
  return l.obtained.get() + l.refused.get() + l.released.get() + l.lost.get() +
         l.units_created.get() + l.units_released.get();
}
inline uint64_t driver_calls_without(const DeviceReport& d) { return d.allocations + d.frees; }

inline uint64_t by(alloc::WorkedBy worked_by,
                   const alloc::Counter (&counts)[alloc::kWorkedByKinds]) {
  return counts[static_cast<int>(worked_by)].get();
}

// Sums of all waits: of frees, and for debts, i.e. work whose order earlier frees had left to the
// device.
inline WaitSum waits_of_frees(const FreeCounts& frees) {
  WaitSum sum;
  sum.add(frees.for_visible);
  sum.add(frees.for_all);
  return sum;
}
inline WaitSum waits_for_order(const FreeCounts& frees) {
  WaitSum sum;
  sum.add(frees.paid);
  return sum;
}

template <typename Visitor>
void for_each_device(const ProcessReport& process, Visitor visit) {
  DeviceReport device;
  for (int i = 0; process.next_device(i, &device); i = device.ordinal + 1) visit(device);
}

// The report at exit (CISTERN_REPORT): what the pools did, per device. Written once, by each
// process that used CUDA, without a CUDA call; to CISTERN_REPORT_FILE or to what was stderr at
// load. The caller brings the figures, which are kept in folders above this one
// (order/contexts/all_contexts.h).

// At load: keeps a duplicate of stderr, which the program may close before it ends.
void open_report(const config::Policy& policy);

void write_report(ProcessReport process);

// Instead of a report, one line that says that the process used no CUDA. Written only by the first
// process that was asked for a report, not by its children.
void tell_that_no_cuda_was_used();

}  // namespace cistern::shim
