// SPDX-License-Identifier: Apache-2.0
// CUDA's MemorySource: chunks from cuMemAlloc, order from events recorded for a whole context. All
// of it runs inside calls of the program; the calls the program did not ask for pass the capture
// gate. mark(), query() and forget() are called by one thread at a time (allocator/reclaim.h).
#pragma once

#include <atomic>

#include "allocator/source.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

class CudaSource final : public alloc::MemorySource {
 public:
  void init(CUcontext context, CUdevice device);

  // The context is about to be destroyed: no call of ours may touch it (or again may).
  bool closing() const { return closing_.load(std::memory_order_seq_cst); }
  void set_closing(bool closing) { closing_.store(closing, std::memory_order_seq_cst); }

  int obtain(uint64_t bytes, uint64_t* address) override;
  int release(uint64_t address) override;
  int give_back(uint64_t address) override;
  bool relieve() override;
  bool mark(alloc::Mark* out) override;
  alloc::MarkState query(alloc::Mark mark) override;
  void forget(alloc::Mark mark) override;

 private:
  bool take_event(CUevent* event);

  static constexpr int kEvents = 8;

  CUcontext context_;
  CUdevice device_;
  std::atomic<bool> closing_;
  CUevent spare_[kEvents];
  int spares_;
};

}  // namespace cistern::shim
