// SPDX-License-Identifier: Apache-2.0
#include "watch/watcher.h"

#include <algorithm>
#include <mutex>

#include "base/settings.h"
#include "exec/context.h"
#include "exec/engine.h"
#include "watch/access.h"
#include "watch/findings.h"
#include "watch/history.h"
#include "watch/oracle.h"
#include "watch/report.h"
#include "watch/shadow.h"

namespace simcuda {
namespace {

constexpr uint32_t kHostLane = 0;
// Touches after which what can no longer matter is dropped.
constexpr uint64_t kSweepEvery = 1024;

struct Watcher {
  bool races = false;
  bool racy = false;  // the program is not in order itself: of its races, only lost order matters
  Shadow shadow;
  Memory memory;
  Lives reservations;
  VectorClock host;
  uint64_t host_step = 0;
  uint64_t operations = 0;
  uint64_t touches = 0;
};

// Guarded by exec_mutex().
Watcher& watcher() {
  static Watcher& only = *new Watcher;
  return only;
}

thread_local Call t_call{};

void sweep_now_and_then(Watcher& all) {
  if (++all.touches % kSweepEvery == 0) all.shadow.drop_covered(all.host);
}

// Caller holds exec_mutex().
void touch(const Piece& piece, const Record& record, const VectorClock& clock,
           const VectorClock* promised = nullptr) {
  Watcher& all = watcher();
  for (const Conflict& conflict : all.shadow.touch(piece.key, piece.bytes, record, clock)) {
    const bool lost = promised != nullptr && promised->covers(conflict.earlier.at);
    if (promised != nullptr && all.racy && !lost) continue;
    report_race(lost ? Finding::kOrderLost : Finding::kRace, conflict, record,
                piece.address + (conflict.address - piece.key), all.memory);
  }
  sweep_now_and_then(all);
}

std::shared_ptr<const Operation> host_operation() {
  return std::make_shared<const Operation>(
      Operation{++watcher().operations, t_call, nullptr, 0, 0, thread_number()});
}

uint64_t key_of(const Allocation& allocation) {
  return allocation.physical == 0 ? allocation.base : allocation.physical;
}

// Caller holds exec_mutex(). The blocks of an allocation end with it.
void end_life(const Allocation& allocation) {
  Watcher& all = watcher();
  all.memory.allocations.end(allocation.base, t_call, ++all.operations);
  std::vector<uint64_t> blocks;
  for (const auto& [address, block] : all.memory.blocks.live()) {
    if (allocation.contains(address)) blocks.push_back(address);
  }
  for (uint64_t address : blocks) all.memory.blocks.end(address, t_call, all.operations);
}

void report_leaks() {
  const std::lock_guard lock(exec_mutex());
  for (const auto& [address, life] : watcher().memory.allocations.live()) report_leak(life);
  for (const auto& [address, life] : watcher().reservations.live()) report_leak(life);
}

constinit bool g_leaks = false;

// Runs after the program's own destructors, which may still free.
__attribute__((destructor)) void at_end() {
  if (g_leaks) report_leaks();
}

}  // namespace

bool start_watching(const Settings& settings) {
  g_leaks = settings.leaks;
  watcher().races = settings.races != RaceMode::kOff || settings.order != 0;
  watcher().racy = (settings.order & kRacyProgram) != 0;
  watcher().shadow.keep_unordered(watcher().racy);
  if (settings.order != 0) start_judging((settings.order & kKernelsMeet) != 0);
  if (!watcher().races && !g_leaks) return true;
  g_watching = true;
  if (watcher().races) keep_clocks();
  return open_reports(settings.races_file, settings.races == RaceMode::kAbort);
}

void set_current_call(Call call) { t_call = call; }

Call current_call() { return t_call; }

bool watch_submit(Stream& stream, Work& work) {
  Watcher& all = watcher();
  if (!keeping_clocks()) return true;
  VectorClock& clock = work.done->clock;
  clock = work.after.clock;
  clock.join(all.host);
  const Epoch epoch = stream.lane.next(all.host);
  clock.set(epoch);
  work.done->at = epoch;
  if (!all.races) return true;
  const auto by = std::make_shared<const Operation>(Operation{
      ++all.operations, work.call, work.kernel, stream.id, stream.context.id(), thread_number()});
  work.done->by = by;
  if (judging()) promise(stream, work);
  // Nobody looks at the bytes of a program that races, and two threads must not.
  bool fine = !all.racy || work.accesses.empty();
  for (const Access& access : work.accesses) {
    if (access.bytes == 0) continue;
    const Verdict verdict = examine(access, work, stream.context, all.memory, clock);
    if (verdict.wrong != nullptr) {
      const Finding kind = work.ends != 0 ? Finding::kInvalidFree : Finding::kInvalidAccess;
      report_access(kind, verdict, access, *by, all.memory);
      fine = false;
      continue;
    }
    for (const Piece& piece : verdict.pieces)
      touch(piece, {by, epoch, access.touch}, clock, judging() ? &work.done->promised : nullptr);
  }
  if (Life* ends = work.ends == 0 ? nullptr : all.memory.allocations.at(work.ends)) {
    ends->end_at = epoch;
  }
  return fine;
}

void host_learns(const VectorClock& clock) { watcher().host.join(clock); }

VectorClock host_clock() {
  const std::lock_guard lock(exec_mutex());
  return watcher().host;
}

void watch_begun(const Allocation& allocation, Past past) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  Watcher& all = watcher();
  // Nobody has to give a variable back: it is no leak.
  if (allocation.kind == MemoryKind::kGlobal) {
    all.shadow.forget(allocation.base, allocation.bytes);
    return;
  }
  all.memory.allocations.begin({.address = allocation.base,
                                .bytes = allocation.bytes,
                                .begun_by = t_call,
                                .begun = ++all.operations});
  // The driver hands out nothing that is still in use. Mapped bytes keep their past, and so do
  // those that a memory pool hands out for an order that the program made.
  if (allocation.physical == 0 && past == Past::kForgotten) {
    all.shadow.forget(allocation.base, std::max(allocation.bytes, allocation.placed));
  }
}

void watch_pool_got(CUdeviceptr address, uint64_t bytes) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  watcher().shadow.forget(address, bytes);
}

void watch_freed(const Allocation& allocation) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  Watcher& all = watcher();
  if (all.races) {
    const Epoch epoch{kHostLane, ++all.host_step};
    all.host.set(epoch);
    touch({key_of(allocation), allocation.base, allocation.bytes},
          {host_operation(), epoch, Touch::kWrite}, all.host);
  }
  end_life(allocation);
}

void watch_ended(const Allocation& allocation) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  end_life(allocation);
}

void watch_free_refused(CUdeviceptr address) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  Watcher& all = watcher();
  if (all.races) report_free(t_call, address, all.memory);
}

void watch_physical_begun(uint64_t key, uint64_t bytes) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  Watcher& all = watcher();
  all.memory.allocations.begin(
      {.address = key, .bytes = bytes, .begun_by = t_call, .begun = ++all.operations});
}

void watch_physical_ended(uint64_t key) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  Watcher& all = watcher();
  if (const Life* life = all.memory.allocations.at(key)) all.shadow.forget(key, life->bytes);
  all.memory.allocations.end(key, t_call, ++all.operations);
}

void watch_reserved(CUdeviceptr address, uint64_t bytes) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  Watcher& all = watcher();
  all.reservations.begin(
      {.address = address, .bytes = bytes, .begun_by = t_call, .begun = ++all.operations});
}

void watch_unreserved(CUdeviceptr address) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  watcher().reservations.end(address, t_call, ++watcher().operations);
}

void watch_block_begun(CUdeviceptr address, uint64_t bytes) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  Watcher& all = watcher();
  if (Life* slab = all.memory.allocations.holding(address)) ++slab->blocks;
  all.memory.blocks.begin({.address = address, .bytes = bytes, .begun = ++all.operations});
}

void watch_block_ended(CUdeviceptr address) {
  if (!watching()) return;
  const std::lock_guard lock(exec_mutex());
  Watcher& all = watcher();
  const bool ended = all.memory.blocks.end(address, std::nullopt, ++all.operations);
  if (!ended && all.races) report_block_end(address, all.memory);
}

}  // namespace simcuda
