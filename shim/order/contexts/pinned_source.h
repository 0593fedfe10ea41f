// SPDX-License-Identifier: Apache-2.0
// The MemorySource of page-locked host memory: chunks from cuMemHostAlloc with one set of flags, in
// one context. It has no work of its own and so no marks: the pool is tied to every context
// (pinned_pools.h). Any thread.
#pragma once

#include <atomic>

#include "allocator/base/source.h"
#include "shim/cuda_api.h"
#include "shim/order/cuda_source.h"

namespace cistern::shim {

class PinnedSource final : public alloc::MemorySource {
 public:
  // `owner`: the source of the context's device memory. `release_from_others`: idle pinned memory
  // of other pools goes back to the driver; true if that was anything. `most_bytes`: what the pools
  // may hold.
  void init(CUcontext context, CudaSource* owner, unsigned flags, uint64_t most_bytes,
            bool (*release_from_others)());

  // Whether some thread is in a driver call that may end the context.
  bool closing() const { return owner_->closing(); }
  // Whether some thread calls the driver for memory of the pool, or fills it.
  bool at_work() const { return at_work_.load(std::memory_order_seq_cst) != 0; }

  int obtain(uint64_t bytes, uint64_t* address) override;
  int release_for_program(uint64_t address) override;
  int release(uint64_t address) override;
  bool refuses_release() override;
  bool request_background_work(bool soon) override;
  int fill(const alloc::FillRange* ranges, int count) override;
  bool release_from_other_pools() override { return release_from_others_(); }
  bool mark(alloc::Mark*) override { return false; }
  bool marks_anywhere() override;
  uint64_t memory_bytes() override { return most_bytes_; }
  alloc::MarkState query(alloc::Mark) override { return alloc::MarkState::failed; }
  void forget(alloc::Mark) override {}

 private:
  bool may_touch_context() const;

  CUcontext context_;
  CudaSource* owner_;
  unsigned flags_;
  uint64_t most_bytes_;
  bool (*release_from_others_)();
  std::atomic<int> at_work_;
};

}  // namespace cistern::shim
