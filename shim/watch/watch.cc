// SPDX-License-Identifier: Apache-2.0
#include "shim/watch/watch.h"

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"
#include "shim/sites/sites.h"

namespace cistern::shim {
namespace {

using alloc::Event;
using alloc::EventType;
using alloc::Memory;

// An allocation in a capture is a node of its graph, and no memory yet.
bool captured(Memory memory, CUstream stream) {
  if (memory != Memory::stream_ordered || stream == nullptr || stream == CU_STREAM_LEGACY)
    return false;
  CUstreamCaptureStatus status;
  return driver().cuStreamIsCapturing != nullptr &&
         driver().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The current context if it has a pool. The thread remembers it.
const Context* pooled_context() { return active() ? current_context() : nullptr; }

uint64_t context_of_call(const Context* pooled) {
  if (pooled != nullptr) [[likely]]
    return reinterpret_cast<uint64_t>(this_thread.handle);
  CUcontext context = nullptr;
  driver().cuCtxGetCurrent(&context);
  return reinterpret_cast<uint64_t>(context);
}

void tell_place(Event& event) {
  const Context* pooled = pooled_context();
  event.context = context_of_call(pooled);
  CUdevice device = 0;
  if (pooled != nullptr) {
    device = pooled->device.load(std::memory_order_relaxed);
  } else if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) {
    device = 0;
  }
  event.device = static_cast<uint32_t>(device);
}

// Whether it matters which blocks are live. Graphs that the program marks are found without that.
bool wants_blocks() {
  if (watching(kWatchTallies | kWatchReuse)) return true;
  return watching(kWatchPhases) && phases().by_live_bytes();
}

// Whether a call counts if only phases are recorded.
bool counts(Memory memory, CUstream stream) {
  return phases().by_live_bytes() && !captured(memory, stream);
}

// Whether a pool may have served the call, so that the memory may have been another block's before.
bool poolable(Memory memory) { return memory == Memory::linear || memory == Memory::pinned; }

}  // namespace

WatchedAllocation::WatchedAllocation(Memory memory, CUstream stream) {
  event_.memory = memory;
  event_.stream = reinterpret_cast<uint64_t>(stream);
  this_thread.site = event_.site = capture_site();
  event_.range = current_range();
  event_.thread = thread_number();
}

WatchedAllocation::~WatchedAllocation() { this_thread.site = 0; }

void WatchedAllocation::ended(CUresult result, uint64_t address, uint64_t bytes) {
  const bool blocks = wants_blocks();
  if (!blocks && !watching(kWatchRecord)) return;
  const alloc::KeepErrno keep;
  if (captured(event_.memory, reinterpret_cast<CUstream>(event_.stream))) return;
  event_.type = result == CUDA_SUCCESS ? EventType::allocated : EventType::refused;
  event_.address = address;
  event_.bytes = bytes;
  event_.code = result;
  tell_place(event_);
  if (watching(kWatchRecord)) event_.time_ns = record_clock();
  event_.phase = current_phase();
  if (event_.type == EventType::allocated) {
    if (blocks) holders_allocated(event_);
    if (blocks && watching(kWatchTallies | kWatchPhases)) phase_allocated(bytes);
    if (watching(kWatchReuse) && poolable(event_.memory)) log_allocated(event_);
  }
  if (watching(kWatchRecord)) record(event_);
}

WatchedFree::WatchedFree(Memory memory, uint64_t address, CUstream stream) {
  const bool blocks = wants_blocks();
  if (!blocks && !watching(kWatchRecord)) return;
  event_.type = EventType::freed;
  event_.memory = memory;
  event_.address = address;
  event_.stream = reinterpret_cast<uint64_t>(stream);
  ignored_ = captured(memory, stream);
  if (ignored_) return;
  event_.range = current_range();
  event_.phase = current_phase();
  event_.thread = thread_number();
  if (watching(kWatchRecord)) event_.time_ns = record_clock();
  known_ = blocks && holders_freed(event_, &block_);
  if (!known_) return;
  if (watching(kWatchTallies | kWatchPhases)) phase_freed(block_.bytes);
  if (watching(kWatchReuse) && poolable(block_.memory)) log_freed(block_);
}

WatchedFree::~WatchedFree() {
  if (succeeded_) {
    if (!ignored_ && watching(kWatchRecord)) record(event_);
  } else if (known_) {
    if (watching(kWatchReuse) && poolable(block_.memory)) log_not_freed(block_);
    holders_not_freed(block_);
    if (watching(kWatchTallies | kWatchPhases)) phase_allocated(block_.bytes);
  }
}

void note_live(Memory memory, uint64_t address, uint64_t bytes, CUstream stream) {
  if (!counts(memory, stream)) return;
  phase_block_allocated(memory, address, bytes, context_of_call(pooled_context()));
}

bool note_not_live(Memory memory, uint64_t address, CUstream stream,
                   alloc::LiveBlocks::Block* block) {
  return counts(memory, stream) && phases().block_freed(memory, address, block);
}

void watched_synchronised() {
  note_synchronisation_point();
  if (watching(kWatchRecord)) record_synchronised();
}

void watched_context_ended(CUcontext context, uint64_t pooled) {
  if (watching_phases_alone()) {
    phases().context_ended(reinterpret_cast<uint64_t>(context));
    if (phases().by_live_bytes()) phase_freed(pooled);
    return;
  }
  Event event{};
  event.type = EventType::context_ended;
  event.context = reinterpret_cast<uint64_t>(context);
  const uint64_t gone = wants_blocks() ? holders_context_ended(event) : 0;
  if (gone != 0 && watching(kWatchTallies | kWatchPhases)) phase_freed(gone);
  if (watching(kWatchReuse)) log_context_ended(event.context);
  if (watching(kWatchRecord)) record(event);
}

}  // namespace cistern::shim
