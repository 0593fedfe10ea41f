// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/pinned_source.h"

#include <cstring>

#include "allocator/base/counted_in.h"
#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/streams/events.h"
#include "shim/order/suspicion.h"
#include "shim/order/told.h"
#include "shim/process/background.h"
#include "shim/process/no_cancel.h"
#include "shim/process/settings.h"
#include "shim/record/reuse_log.h"

namespace cistern::shim {
namespace {
constexpr auto kMemory = alloc::Memory::pinned;
}

void PinnedSource::init(CUcontext context, CudaSource* owner, unsigned flags, uint64_t most_bytes,
                        bool (*release_from_others)()) {
  context_ = context;
  owner_ = owner;
  flags_ = flags;
  most_bytes_ = most_bytes;
  release_from_others_ = release_from_others;
}

bool PinnedSource::may_touch_context() const { return !closing() && may_call(); }

bool PinnedSource::refuses_release() { return !may_touch_context() || capture_gate().capturing(); }

bool PinnedSource::marks_anywhere() { return driver().cuCtxRecordEvent != nullptr; }

bool PinnedSource::request_background_work(bool soon) {
  return owner_->request_background_work(soon);
}

int PinnedSource::obtain(uint64_t bytes, uint64_t* address) {
  const NoCancel in_hand;
  void* memory = nullptr;
  const CUresult result = noted(driver().cuMemHostAlloc(&memory, bytes, flags_), context_);
  *address = reinterpret_cast<uint64_t>(memory);
  if (result == CUDA_SUCCESS) note_obtained({kMemory, /*device=*/0, context_}, *address, bytes);
  return told("takes pinned memory", *address, bytes, result);
}

int PinnedSource::release_for_program(uint64_t address) {
  const NoCancel in_hand;
  const ChunkRelease release(kMemory, address);
  const CUresult freed = noted(driver().cuMemFreeHost(reinterpret_cast<void*>(address)), context_);
  return release.ended(told("frees pinned memory for the program", address, 0, freed));
}

// An error may be the refusal of this call or belong to earlier work, so the driver is asked
// whether it still knows the memory.
int PinnedSource::release(uint64_t address) {
  const GatePass pass;
  const alloc::CountedIn at_work(at_work_);
  if (!pass || !may_touch_context()) return alloc::kNotNow;
  const ContextScope scope(context_);
  if (!scope) return alloc::kNotNow;
  auto* memory = reinterpret_cast<void*>(address);
  const ChunkRelease release(kMemory, address);
  const CUresult freed = noted(driver().cuMemFreeHost(memory), context_);
  unsigned flags;
  const bool known = freed != CUDA_SUCCESS && may_call() && driver().cuMemHostGetFlags != nullptr &&
                     driver().cuMemHostGetFlags(&flags, memory) == CUDA_SUCCESS;
  return release.ended(told("returns pinned memory", address, 0, known ? alloc::kNotNow : freed));
}

// Nobody else may touch the ranges, so the calling thread writes them itself, also in a capture.
int PinnedSource::fill(const alloc::FillRange* ranges, int count) {
  const alloc::CountedIn at_work(at_work_);
  if (closing()) return alloc::kContextGone;
  for (int i = 0; i < count; ++i) {
    std::memset(reinterpret_cast<void*>(ranges[i].address), policy().fill_byte(), ranges[i].bytes);
  }
  return alloc::kSuccess;
}

}  // namespace cistern::shim
