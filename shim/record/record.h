// SPDX-License-Identifier: Apache-2.0
// The observers of the program's allocations: the recording of this process (CISTERN_RECORD), the
// sums of memory held by call site, range and phase, and the log of reuse (CISTERN_PRINT_LOG). At
// load the settings decide which of them observe. The hooks check that first, so without such a
// setting the cost is one load and a branch. Any thread. The caller may hold no lock of Cistern's,
// except a lock under which a source is called.
//
// The recording (recording.cc) is one file. It begins with the first event, so a process that uses
// no CUDA leaves none. The background thread writes new events each second. A child forked later
// records nothing.
//
// The holders (holders.cc, allocator/record/tallies.h) are for the report, the out-of-memory
// message and the log of reuse. The log of reuse (reuse_log.cc) has a line for each new block in
// memory of a former block, and a summary at exit. Sources report their chunks for this log and for
// recordings. Holders and log have one lock each.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/base/source.h"
#include "allocator/record/event.h"
#include "allocator/record/tallies.h"
#include "config/policy.h"
#include "shim/cuda_api.h"
#include "shim/process/report_figures.h"

namespace cistern::shim {

enum Watch : unsigned {
  kWatchRecord = 1,   // every event goes to a file
  kWatchTallies = 2,  // sums are kept by site, range and phase
  kWatchReuse = 4,    // every reuse of a block is logged
  kWatchOrigin = 8,   // a request's call site or range decides how it is served
  kWatchPhases = 16,  // phases are found: for the arenas of graphs, or by CISTERN_GRAPH_RANGE
};

inline constinit std::atomic<unsigned> watched_for{0};

inline bool watching() { return watched_for.load(std::memory_order_relaxed) != 0; }
// Whether any of the Watch bits in `what` is set.
inline bool watching(unsigned what) {
  return (watched_for.load(std::memory_order_relaxed) & what) != 0;
}

// At load, also with CISTERN_POOL=off.
void open_watch(const config::Policy& policy);
// To be called by the object's constructor: switches call sites, ranges and phases on, if a setting
// needs them.
void start_watch(const config::Policy& policy);
// Whether only phases observe: they need no more than to know which blocks are live.
inline bool watching_phases_alone() {
  return watched_for.load(std::memory_order_relaxed) == kWatchPhases;
}

// To be called in a forked child: ends all observation there. The state stays as the parent left
// it.
void stop_watching();

// ns since the recording began, at least 1.
uint64_t record_clock();

// The kernel's id of the calling thread; the first call asks the kernel.
uint32_t thread_number();

// Adds the event to the recording. Time 0 means now. Thread 0 means the calling thread, with its
// current range and phase.
void record(alloc::Event event);

// Records a synchronisation point, unless nothing was recorded since the last one.
void record_synchronised();

void close_recording();

// Call sites and ranges in words, for lines that people read. Not for hot paths: names are looked
// up in files, and the program's C++ library may be called to demangle them.

// The most telling frame of a site (allocator/record/program_code.h): "step (train.py:12)" or
// "layer+0x12 (libfoo.so)"; "0x4f12 (app) from 0x31a0 (app)" where it has no name; "an unknown call
// site" for 0. Returns `out`.
const char* describe_site(uint32_t site, char* out, size_t size);

// One level of its stack, the innermost is 0; false beyond the outermost.
bool describe_level(uint32_t site, int level, char* out, size_t size);

// "step/forward"; "no range" for 0. Returns `out`.
const char* describe_range(uint32_t range, char* out, size_t size);

void holders_allocated(const alloc::Event& event);
// The block at the event's address is about to be freed: takes it out of the sums, and writes its
// allocation to `block`. False if the block is not known.
bool holders_freed(const alloc::Event& event, alloc::Event* block);
// That free failed: puts the block back.
void holders_not_freed(const alloc::Event& block);
// The context ended: takes its blocks out of the sums. Returns their bytes.
uint64_t holders_context_ended(const alloc::Event& event);

// The holders for the report; nullptr if CISTERN_SITES is not set.
const HoldersReport* holders_report();

// For the out-of-memory message: the ten call sites that hold most of a device's memory, as
// "; most is held by 12.0 MiB f (a.cc), ..."; "" if they are not known. Returns `out`.
const char* describe_holders(uint32_t device, char* out, size_t size);

// The context ended with all its chunks.
void log_context_ended(uint64_t context);

// A pool answered a request: event.type is allocated.
void log_allocated(const alloc::Event& event);
// The block is about to be freed; `event` is its allocation. From now on another block may get its
// memory.
void log_freed(const alloc::Event& event);
// That free failed.
void log_not_freed(const alloc::Event& event);

// Logs the summary at exit. `lost_bytes`: what rounding of requests lost.
void log_reuse_summary(uint64_t lost_bytes);

// Where a source obtained a chunk.
struct ChunkPlace {
  alloc::Memory memory;
  CUdevice device;
  CUcontext context;
};

void record_obtained(const ChunkPlace& place, uint64_t address, uint64_t bytes);
inline void note_obtained(const ChunkPlace& place, uint64_t address, uint64_t bytes) {
  if (watching()) [[unlikely]]
    record_obtained(place, address, bytes);
}

// Records that a source releases a chunk. Construct it before the driver call: once that begins,
// another thread may get the address. ended() records the release if the call succeeded.
class ChunkRelease {
 public:
  ChunkRelease(alloc::Memory memory, uint64_t address);
  // `code` is the source's result, which is returned.
  int ended(int code) const;

 private:
  alloc::Memory memory_;
  uint64_t address_;
  uint64_t asked_ns_ = 0;
};

}  // namespace cistern::shim
