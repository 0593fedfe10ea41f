// SPDX-License-Identifier: Apache-2.0
// CUDA's MemorySource: chunks from cuMemAlloc, order from events recorded for a whole context or,
// by drivers that cannot do that, for each of its streams (stream_marks.h). All of it runs inside
// calls of the program, or in the background (reaper.h); the calls the program did not ask for pass
// the capture gate. mark(), query(), forget() and stream_leaves() are called by one thread at a
// time (allocator/reclaim/reclaim.h).
#pragma once

#include <atomic>

#include "allocator/base/source.h"
#include "shim/cuda_api.h"
#include "shim/order/streams/stream_marks.h"

namespace cistern::shim {

class CudaSource final : public alloc::MemorySource {
 public:
  // What a source asks of those that know the other contexts.
  struct Others {
    bool (*request_background_work)(bool soon);
    bool (*release_from_other_pools)(CUdevice device);
  };

  void init(CUcontext context, CUdevice device, const Others* others);

  // The context may be about to end, as far as some threads know: no call of ours may touch it.
  bool closing() const { return closing_.load(std::memory_order_seq_cst) != 0; }
  void begin_closing() { closing_.fetch_add(1, std::memory_order_seq_cst); }
  void end_closing() { closing_.fetch_sub(1, std::memory_order_seq_cst); }

  int obtain(uint64_t bytes, uint64_t* address) override;
  int release_for_program(uint64_t address) override;
  int release(uint64_t address) override;
  bool request_background_work(bool soon) override;
  bool refuses_release() override;
  bool can_release_clean() override;
  int release_clean(uint64_t address) override;
  // Beside what the program captures: skipped while it does, as every call of ours.
  int fill(const alloc::FillRange* ranges, int count) override;
  bool filling() const { return filling_.load(std::memory_order_seq_cst) != 0; }
  bool release_from_other_pools() override;
  void shortage_ended(alloc::Step step, uint64_t bytes) override;
  bool mark(alloc::Mark* out) override;
  alloc::MarkState query(alloc::Mark mark) override;
  void forget(alloc::Mark mark) override;

  // A stream of this context is about to be destroyed: false if marks cannot cover what it still
  // does. The program has synchronised the whole context; the registry had `losses` before.
  bool stream_leaves(CUstream stream);
  void synchronised(uint64_t losses) { stream_marks_.synchronised(losses); }

 private:
  bool may_touch_context() const;
  bool take_event(CUevent* event);
  CUstream own_stream();

  static constexpr int kEvents = 8;

  CUcontext context_;
  CUdevice device_;
  const Others* others_;
  std::atomic<int> closing_;  // threads; some may have begun with the context before this one
  std::atomic<int> filling_;  // threads in fill()
  CUevent spare_[kEvents];
  int spares_;
  std::atomic<CUstream> own_stream_;
  std::atomic<bool> clean_refused_;  // the driver did not take memory of cuMemAlloc that way
  StreamMarks stream_marks_;
};

}  // namespace cistern::shim
