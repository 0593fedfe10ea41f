// SPDX-License-Identifier: Apache-2.0
//
// A device pool over a source that does nothing but count, so that what is measured is the pool.
// Work is always finished: a freed block becomes clean as soon as the pool asks. The shim gives the
// first threads of a program a shard each; here the caller names it.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "allocator/base/os.h"
#include "allocator/context_pool.h"

namespace cistern::bench {

struct Totals {
  uint64_t reserved_peak, driver_calls;
};

// Hands out addresses as a device does: each allocation starts at a page of its own.
class CountingSource final : public alloc::MemorySource {
 public:
  int obtain(uint64_t bytes, uint64_t* address) override {
    constexpr uint64_t kPage = uint64_t{2} << 20;
    *address = next_.fetch_add((bytes + kPage - 1) / kPage * kPage, std::memory_order_relaxed);
    return alloc::kSuccess;
  }
  int release_for_program(uint64_t address) override { return alloc::kSuccess; }
  int release(uint64_t address) override { return alloc::kSuccess; }
  bool mark(alloc::Mark* out) override {
    *out = 1;
    return true;
  }
  alloc::MarkState query(alloc::Mark mark) override { return alloc::MarkState::passed; }
  void forget(alloc::Mark mark) override {}

 private:
  std::atomic<uint64_t> next_{uint64_t{0x7f} << 40};
};

class BenchPool {
 public:
  explicit BenchPool(const alloc::ChunkSizes& sizes = {})
      : parts_(static_cast<Parts*>(alloc::os::map(sizeof(Parts), 4096))) {
    std::construct_at(&parts_->source);
    parts_->shared.reclaim.join(0, &parts_->source);
    parts_->pool.init(&parts_->shared, &parts_->source, {&parts_->ledger, &parts_->cap}, 0, sizes);
  }

  uint64_t allocate(uint64_t bytes, unsigned shard = 0) {
    uint64_t address = 0;
    if (parts_->pool.allocate(bytes, shard, &address) != alloc::kSuccess) std::abort();
    return address;
  }

  void free(uint64_t address) {
    int code = alloc::kSuccess;
    alloc::Chunk* chunk = parts_->shared.index.find(address);
    if (chunk == nullptr || parts_->pool.free(chunk, address, &code) != alloc::Freed::done) {
      std::abort();
    }
  }

  Totals totals() const {
    const alloc::Ledger& ledger = parts_->ledger;
    return {ledger.reserved_peak.get(), ledger.obtained.get() + ledger.released.get()};
  }

 private:
  // As in the shim, all but the source is zero bytes at the start, which nobody has to write.
  struct Parts {
    CountingSource source;
    alloc::Shared shared;
    alloc::Ledger ledger;
    alloc::Cap cap;
    alloc::ContextPool pool;
  };
  struct Unmap {
    void operator()(Parts* parts) const { alloc::os::unmap(parts, sizeof *parts); }
  };

  std::unique_ptr<Parts, Unmap> parts_;
};

}  // namespace cistern::bench
