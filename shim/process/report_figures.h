// SPDX-License-Identifier: Apache-2.0
// The figures of the report at exit. They are kept in folders above this one, which hand them down
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

struct Holder {
  uint32_t number;  // of a site or a range
  alloc::Tally tally;
};

// Who holds memory. Those that are not known are number 0.
struct HoldersReport {
  // The first place from `from` on in which anything was allocated; false: none.
  bool (*next_place)(uint32_t from, uint32_t* place, alloc::Tally* total);
  // The first `most` in this order, without those that have none; how many there are.
  int (*top)(uint32_t place, alloc::TallyBy by, alloc::TallyOrder order, Holder* out, int most);
  void (*name)(alloc::TallyBy by, uint32_t number, char* out, size_t size);
  // The stack of a site, the innermost first; false beyond the outermost.
  bool (*level)(uint32_t site, int level, char* out, size_t size);
  // The n-th phase by name, from 1 on; false beyond the last.
  bool (*phase)(uint32_t n, const char** name, alloc::Phases::Figures* out);
};

// An entry of a setting that chooses requests by where they come from.
struct SiteEntry {
  const char* setting;
  std::string_view text;  // as in the setting, or what a switch stands for
  uint64_t matched;       // requests
};

// Blocks inside chunks and other processes: tokens made for them, how often one of these was opened
// elsewhere, and one of another process here; and how often one of these was not, because no
// process under Cistern answered.
struct IpcReport {
  uint64_t exported, answered, opened, unanswered;
};

// The driver's own memory pools that keep memory because of CISTERN_MEMPOOL_THRESHOLD: how many
// there were, the most that all of them had beside what was used, and what was trimmed.
struct PoolsReport {
  uint64_t adopted, kept_peak_bytes, trims, trimmed_bytes;
};

// Functions of the driver that Cistern does not know, and what came of it.
struct UnknownReport {
  uint64_t in_driver;  // that it exports
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
  // What malloc got; false if it is not Cistern's.
  bool (*host_memory)(alloc::host::HostUsage* out);
  // False where no pinned memory was pooled.
  bool (*pinned_memory)(PinnedReport* out);
  const HoldersReport* holders;  // nullptr: CISTERN_SITES is not set
  // The entry of this number, from 0 on; false: there are no more.
  bool (*site_entry)(int index, SiteEntry* out);
  IpcReport ipc;
  // Contexts and streams that turned up though no hook saw them made.
  uint64_t unseen_contexts, unseen_streams;
  UnknownReport unknown;
  const FreeCounts* frees;
  uint64_t ran_ns = 0;  // since Cistern was loaded; put in by write_report()
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

// Frees that waited, and waits for what others had left to the device.
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

// In place of it, in one line; only by the first of the processes that were asked for one.
void tell_that_no_cuda_was_used();

}  // namespace cistern::shim
