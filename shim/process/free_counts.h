// SPDX-License-Identifier: Apache-2.0
// For the report: counts why frees of pooled memory waited, and how many left their order to the
// device (pooled/free_wait.h, order/barrier/debts.h). Frees with nothing to wait for are the most
// frequent and are not counted: the report subtracts the counted ones from the pools' own count of
// frees. Any thread, without a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "allocator/base/ledger.h"
#include "allocator/base/os.h"

namespace cistern::shim {

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

}  // namespace cistern::shim
