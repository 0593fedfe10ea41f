// SPDX-License-Identifier: Apache-2.0
// The report at exit and its figures. Folders above this one keep most figures and hand them down
// (order/contexts/context.h). The counts of waits of frees are declared here, and the code that
// waits adds to them (pooled/free_wait.h, order/barrier/work.h). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

#include "allocator/base/ledger.h"
#include "allocator/base/os.h"
#include "allocator/context_pool.h"
#include "allocator/host/host_pool.h"
#include "allocator/record/phases.h"
#include "allocator/record/tallies.h"
#include "config/policy.h"

namespace cistern::shim {

// --- Counts why frees of pooled memory waited, and how many left their order to the device. Frees
// with nothing to wait for are the most frequent and are not counted: the report subtracts the
// counted ones from the pools' own count of frees. Without a lock.

// Why a free waited for all work of its context, although the device can keep work in order.
enum class FreeWaitReason : uint8_t {
  setting,          // CISTERN_FREE_SYNC=true
  fill,             // Cistern fills memory
  old_driver,       // the driver cannot record an event for a whole context
  capture,          // a stream captured
  careful,          // the process is careful (order/careful.h)
  peers,            // peer access is enabled
  ties,             // copies of another context use the context's memory
  several_threads,  // work of another thread, or of several, is unfinished
  threads_met,      // threads work at the same time, or one gave up waiting for a debt
  not_seen_idle,    // the context was not seen idle since it began, or since work became visible
  visible,          // the host sees some of the work, and no event was recorded behind that
  other,            // the context is about to end, or no event could be made for it
  none,             // the free need not wait
};
inline constexpr const char* kFreeWaitReasons[] = {
    "setting",         "fill",        "old_driver",    "capture", "careful", "peers", "ties",
    "several_threads", "threads_met", "not_seen_idle", "visible", "other"};
static_assert(std::size(kFreeWaitReasons) == static_cast<size_t>(FreeWaitReason::none));

// What made a thread wait for work whose order a free had left to the device.
enum class PaidBy : uint8_t {
  query,         // the program queried an event or a stream
  submission,    // the driver could not order new work behind that work
  end_of_use,    // a call ended or shared what the work may use, or began a capture
  release,       // memory went back to the driver, or to another place
  other_thread,  // any call of a thread other than the one that freed
  exit,          // the process ended
};
inline constexpr const char* kPaidBy[] = {"query",   "submission",   "end_of_use",
                                          "release", "other_thread", "exit"};
static_assert(std::size(kPaidBy) == static_cast<size_t>(PaidBy::exit) + 1);

struct WaitCount {
  alloc::Counter waits, ns;

  void add(uint64_t took_ns) {
    waits.add();
    ns.add(took_ns);
  }
};

struct FreeCounts {
  alloc::Counter ordered;       // frees whose order the device keeps
  alloc::Counter debts;         // that these frees began; several frees in a row share one
  alloc::Counter events;        // recorded for debts
  alloc::Counter stream_waits;  // waits of streams for these events
  WaitCount paid[std::size(kPaidBy)];
  WaitCount for_visible;  // frees that waited only for work that the host sees
  WaitCount for_all[std::size(kFreeWaitReasons)];

  WaitCount& paid_by(PaidBy who) { return paid[static_cast<size_t>(who)]; }
  WaitCount& waited(FreeWaitReason why) { return for_all[static_cast<size_t>(why)]; }
};

struct WaitSum {
  uint64_t waits = 0, ns = 0;

  void add(const WaitCount& count) {
    waits += count.waits.get();
    ns += count.ns.get();
  }
  template <size_t n>
  void add(const WaitCount (&counts)[n]) {
    for (const WaitCount& count : counts) add(count);
  }
};

// Counts a wait from here to the end of the scope.
class TimedWait {
 public:
  explicit TimedWait(WaitCount& count) : count_(count) {}
  ~TimedWait() { count_.add(alloc::os::now_ns() - start_); }
  TimedWait(const TimedWait&) = delete;
  TimedWait& operator=(const TimedWait&) = delete;

 private:
  WaitCount& count_;
  const uint64_t start_ = alloc::os::now_ns();
};

// --- What the report is made of.

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

// IPC of blocks inside chunks, by tokens (ipc/protocol.h). This process made `exported` tokens, and
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

// --- The report itself (CISTERN_REPORT): what the pools did, per device. Written once, by each
// process that used CUDA, without a CUDA call; to CISTERN_REPORT_FILE or to what was stderr at
// load. The caller brings the figures.

// At load: keeps a duplicate of stderr, which the program may close before it ends.
void open_report(const config::Policy& policy);

void write_report(ProcessReport process);

// Instead of a report, one line that says that the process used no CUDA. Written only by the first
// process that was asked for a report, not by its children.
void tell_that_no_cuda_was_used();

}  // namespace cistern::shim
