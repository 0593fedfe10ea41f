// SPDX-License-Identifier: Apache-2.0
// CUDA's MemorySource: chunks from cuMemAlloc, order from events recorded for a whole context or,
// by drivers that cannot do that, for each of its streams (events.h). All of it runs inside
// calls of the program, or in the background thread (contexts/context_life.cc). Driver calls that
// the program did not ask for pass the capture gate (capture_gate.h). mark(), query(), forget() and
// stream_leaves() are called by one thread at a time (allocator/reclaim/reclaim.h).
#pragma once

#include <atomic>

#include "allocator/base/source.h"
#include "shim/cuda_api.h"
#include "shim/order/cuda_units.h"
#include "shim/order/streams/events.h"

namespace cistern::shim {

class CudaSource final : public alloc::MemorySource {
 public:
  // What a source needs from the code that knows the other contexts (context_life.cc).
  struct Others {
    bool (*request_background_work)(bool soon);
    bool (*release_from_other_pools)(CUdevice device);
    void (*look_at_ties)();
    uint64_t (*peers)(uint32_t number);  // CudaUnits::Owner
  };

  // `number`: the context's.
  void init(CUcontext context, CUdevice device, uint32_t number, const Others* others);

  // Whether some thread is in a driver call that may end the context (EndingScope): until it is
  // over, no call of Cistern's may touch the context.
  bool closing() const { return closing_.load(std::memory_order_seq_cst) != 0; }
  void begin_closing() { closing_.fetch_add(1, std::memory_order_seq_cst); }
  void end_closing() { closing_.fetch_sub(1, std::memory_order_seq_cst); }

  // No hook saw the context made, so none may see its end: no call of Cistern's own names it. Only
  // synchronisations of the program's show what its work has passed.
  void set_careful(bool careful) { careful_.store(careful, std::memory_order_seq_cst); }
  // No hook saw a stream of the context made, and there may be more: no marks of its streams.
  void stream_unseen() { stream_marks_.stream_unseen(); }

  int obtain(uint64_t bytes, uint64_t* address) override;
  int release_for_program(uint64_t address, const alloc::OrderedFree* ordered) override;
  int release(uint64_t address) override;
  CudaUnits* units() override { return units_.unit_bytes() == 0 ? nullptr : &units_; }
  // The context has ended.
  void context_gone() { units_.context_gone(); }
  bool request_background_work(bool soon) override;
  bool refuses_release() override;
  bool can_release_clean() override;
  bool release_clean_untried() override;
  bool release_clean_trusted() override;
  bool unsettled() override { return unsettled_.load(); }
  bool settle_clean_releases() override;
  int release_clean(uint64_t address, uint64_t bytes) override;
  bool pays_what_it_owes(bool waits) override;
  // kNotNow while the program captures, as for every driver call of Cistern's own.
  int fill(const alloc::FillRange* ranges, int count) override;
  // Whether some thread calls the driver for memory of the context.
  bool at_work() const { return at_work_.load(std::memory_order_seq_cst) != 0; }
  bool release_from_other_pools() override;
  bool graph_is_open(uint32_t run) override;
  void graphs_overlap() override;
  void plan_made(uint64_t bytes, uint64_t requests) override;
  void shortage_ended(alloc::Step step, uint64_t bytes) override;
  bool mark(alloc::Mark* out) override;
  bool ending() override;
  bool marks_may_come() override;
  bool marks_anywhere() override;
  void look_at_ties() override;
  uint64_t memory_bytes() override;
  alloc::MarkState query(alloc::Mark mark) override;
  void forget(alloc::Mark mark) override;

  // A stream of this context is about to be destroyed: false if marks cannot cover the work it
  // still has.
  bool stream_leaves(CUstream stream);
  // How many threads of the program are in a synchronisation of the whole context.
  std::atomic<int>& synchronising() { return synchronising_; }
  // The program has synchronised the whole context; `losses` is what StreamRegistry::losses() was
  // before.
  void synchronised(uint64_t losses) { stream_marks_.synchronised(losses); }

 private:
  bool may_touch_context() const;
  bool take_event(CUevent* event);
  CUstream own_stream();
  CUresult wait_for(CUstream stream) const;
  void note_clean_release(bool helped);

  static constexpr int kEvents = kMostMarks + 1;  // one is being recorded

  CUcontext context_;
  CUdevice device_;
  const Others* others_;
  std::atomic<int> closing_;  // threads; some may have begun while an earlier context had the slot
  std::atomic<bool> careful_;
  std::atomic<int> synchronising_{0};
  std::atomic<int> at_work_;  // threads that fill or release memory
  CUevent spare_[kEvents];
  int spares_;
  std::atomic<CUstream> own_stream_;
  // Whether cuMemFreeAsync gives memory of cuMemAlloc back to the device at once.
  enum class CleanRelease : uint8_t { unknown, helps, helps_not };
  std::atomic<CleanRelease> clean_release_;
  std::atomic<bool> unsettled_;  // a release in stream order was not seen to help yet
  std::atomic<int> clean_releases_in_vain_;
  StreamMarks stream_marks_;
  CudaUnits units_;
};

}  // namespace cistern::shim
