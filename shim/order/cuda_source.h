// SPDX-License-Identifier: Apache-2.0
// CUDA's MemorySource: chunks from cuMemAlloc, order from events recorded for a whole context or,
// by drivers that cannot do that, for each of its streams (stream_marks.h). All of it runs inside
// calls of the program, or in the background thread (contexts/reaper.h). Driver calls that the
// program did not ask for pass the capture gate (capture_gate.h). mark(), query(), forget() and
// stream_leaves() are called by one thread at a time (allocator/reclaim/reclaim.h).
#pragma once

#include <atomic>

#include "allocator/base/source.h"
#include "shim/cuda_api.h"
#include "shim/order/streams/stream_marks.h"

namespace cistern::shim {

class CudaSource final : public alloc::MemorySource {
 public:
  // What a source needs from the code that knows the other contexts (context_life.cc).
  struct Others {
    bool (*request_background_work)(bool soon);
    bool (*release_from_other_pools)(CUdevice device);
  };

  void init(CUcontext context, CUdevice device, const Others* others);

  // Whether some thread is in a driver call that may end the context (EndingScope): until it is
  // over, no call of Cistern's may touch the context.
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
  // kNotNow while the program captures, as for every driver call of Cistern's own.
  int fill(const alloc::FillRange* ranges, int count) override;
  bool filling() const { return filling_.load(std::memory_order_seq_cst) != 0; }
  bool release_from_other_pools() override;
  void shortage_ended(alloc::Step step, uint64_t bytes) override;
  bool mark(alloc::Mark* out) override;
  alloc::MarkState query(alloc::Mark mark) override;
  void forget(alloc::Mark mark) override;

  // A stream of this context is about to be destroyed: false if marks cannot cover the work it
  // still has.
  bool stream_leaves(CUstream stream);
  // The program has synchronised the whole context; `losses` is what StreamRegistry::losses() was
  // before.
  void synchronised(uint64_t losses) { stream_marks_.synchronised(losses); }

 private:
  bool may_touch_context() const;
  bool take_event(CUevent* event);
  CUstream own_stream();

  static constexpr int kEvents = 8;

  CUcontext context_;
  CUdevice device_;
  const Others* others_;
  std::atomic<int> closing_;  // threads; some may have begun while an earlier context had the slot
  std::atomic<int> filling_;  // threads in fill()
  CUevent spare_[kEvents];
  int spares_;
  std::atomic<CUstream> own_stream_;
  std::atomic<bool> clean_refused_;  // cuMemFreeAsync did not take memory of cuMemAlloc
  StreamMarks stream_marks_;
};

}  // namespace cistern::shim
