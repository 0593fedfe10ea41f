// SPDX-License-Identifier: Apache-2.0
// What observes the program's allocations: the recording of this process (CISTERN_RECORD), the sums
// of who holds memory now, and the log of reuse (CISTERN_PRINT_LOG). Settings decide at load what
// observes. The hooks check that first, so without such a setting the cost is one load and a
// branch. Any thread; no lock of Cistern's may be held but that of a source's caller.
//
// The recording (recording.cc) is one file. It begins with the first event, so a process that uses
// no CUDA leaves none. The background thread writes new events each second. A child forked later
// records nothing.
//
// The holders (holders.cc, allocator/record/tallies.h) are for the report, the out-of-memory
// message and the log of reuse. The log of reuse (reuse_log.cc) has a line for each new block in
// memory of a former block, and a summary at exit. Sources report their chunks to it, for this log
// and for recordings. Each of the two has one lock, held for nothing else.
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
  kWatchOrigin = 8,   // requests are treated by where they come from
  kWatchPhases = 16,  // phases are found, as graphs for arenas or by the range that was set
};

inline constinit std::atomic<unsigned> watched_for{0};

inline bool watching() { return watched_for.load(std::memory_order_relaxed) != 0; }
// For any of these.
inline bool watching(unsigned what) {
  return (watched_for.load(std::memory_order_relaxed) & what) != 0;
}

// At load, also with CISTERN_POOL=off.
void open_watch(const config::Policy& policy);
// By the object's constructor: call sites, ranges and phases, as far as they are wanted.
void start_watch(const config::Policy& policy);
// Phases alone want no more than which blocks are live.
inline bool watching_phases_alone() {
  return watched_for.load(std::memory_order_relaxed) == kWatchPhases;
}

// In a forked child, whose memory is the parent's and stays so.
void stop_watching();

// ns since the recording began, at least 1.
uint64_t record_clock();

// The system's number of the calling thread, asked once.
uint32_t thread_number();

// Adds the event. A time of 0 is now, and a thread of 0 the calling one, in its range and phase.
void record(alloc::Event event);

// The same of a synchronisation point, unless nothing was recorded since the last one.
void record_synchronised();

void close_recording();

// Call sites and ranges in words, for lines that people read. Not on the program's path: names are
// looked up in files, and the C++ library that the program has may be asked to demangle them.

// The frame that says most (allocator/record/program_code.h): "step (train.py:12)" or
// "layer+0x12 (libfoo.so)"; "0x4f12 (app) from 0x31a0 (app)" where it has no name; "an unknown call
// site" for 0. Returns `out`.
const char* describe_site(uint32_t site, char* out, size_t size);

// One level of its stack, the innermost is 0; false beyond the outermost.
bool describe_level(uint32_t site, int level, char* out, size_t size);

// "step/forward"; "no range" for 0. Returns `out`.
const char* describe_range(uint32_t range, char* out, size_t size);

void holders_allocated(const alloc::Event& event);
// The block at the address of the event is about to be freed: it goes to `block`; false if it is
// not known.
bool holders_freed(const alloc::Event& event, alloc::Event* block);
// It was not freed after all.
void holders_not_freed(const alloc::Event& block);
// The bytes that went with it.
uint64_t holders_context_ended(const alloc::Event& event);

// What the report says of them; nullptr where CISTERN_SITES is not set.
const HoldersReport* holders_report();

// "; most is held by 12.0 MiB f (a.cc), ..." for a device on which memory is out: the ten call
// sites that hold most of it; "" where they are not known. Returns `out`.
const char* describe_holders(uint32_t device, char* out, size_t size);

// The context ended with all its chunks.
void log_context_ended(uint64_t context);

// A pool answered a request: event.type is allocated.
void log_allocated(const alloc::Event& event);
// The block is about to be freed; `event` is its allocation. From now on its memory may be
// another's.
void log_freed(const alloc::Event& event);
// It was not freed.
void log_not_freed(const alloc::Event& event);

// `lost_bytes`: lost to rounding.
void log_reuse_summary(uint64_t lost_bytes);

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

// Around the driver call: from its beginning on the address may be somebody else's.
class ChunkRelease {
 public:
  ChunkRelease(alloc::Memory memory, uint64_t address);
  // `code` is what the source answers.
  int ended(int code) const;

 private:
  alloc::Memory memory_;
  uint64_t address_;
  uint64_t asked_ns_ = 0;
};

}  // namespace cistern::shim
