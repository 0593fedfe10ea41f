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

// Physical units, and addresses for them. Each unit is mapped by a call of its own, and one more
// gives access to all of them (shim/order/cuda_units.cc).
class CountingUnits final : public alloc::UnitSource {
 public:
  uint64_t unit_bytes() override { return uint64_t{2} << 20; }
  int reserve_addresses(uint64_t bytes, uint64_t* address) override {
    *address = next_.fetch_add(bytes, std::memory_order_relaxed);
    return counted(1);
  }
  void free_addresses(uint64_t, uint64_t) override { counted(1); }
  int create(alloc::Unit* unit) override {
    *unit = last_.fetch_add(1, std::memory_order_relaxed) + 1;
    return counted(1);
  }
  void release(alloc::Unit) override { counted(1); }
  int map(uint64_t, const alloc::Unit*, uint32_t count) override { return counted(count + 1); }
  int unmap(uint64_t, uint32_t) override { return counted(1); }
  int unmap_of_gone(uint64_t, uint64_t) override { return counted(1); }

  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  int counted(uint64_t calls) {
    calls_.fetch_add(calls, std::memory_order_relaxed);
    return alloc::kSuccess;
  }

  std::atomic<uint64_t> next_{uint64_t{0x70} << 40}, last_{0}, calls_{0};
};

// Hands out addresses as a device does: each allocation starts at a page of its own.
class CountingSource final : public alloc::MemorySource {
 public:
  int obtain(uint64_t bytes, uint64_t* address) override {
    constexpr uint64_t kPage = uint64_t{2} << 20;
    *address = next_.fetch_add((bytes + kPage - 1) / kPage * kPage, std::memory_order_relaxed);
    return alloc::kSuccess;
  }
  alloc::UnitSource* units() override { return &units_; }
  uint64_t unit_calls() const { return units_.calls(); }
  int release_for_program(uint64_t address, const alloc::OrderedFree* ordered) override {
    return alloc::kSuccess;
  }
  int release(uint64_t address) override { return alloc::kSuccess; }
  bool mark(alloc::Mark* out) override {
    *out = 1;
    return true;
  }
  alloc::MarkState query(alloc::Mark mark) override { return alloc::MarkState::passed; }
  void forget(alloc::Mark mark) override {}

 private:
  std::atomic<uint64_t> next_{uint64_t{0x7f} << 40};
  CountingUnits units_;
};

class BenchPool {
  // As the shim frees where nothing was submitted since the context was seen empty.
  static constexpr alloc::Ticket kNothingPending = 0;

 public:
  explicit BenchPool(const alloc::ChunkSizes& sizes = {},
                     std::span<const alloc::plan::Plan> plan = {})
      : parts_(static_cast<Parts*>(alloc::os::map(sizeof(Parts), 4096))) {
    std::construct_at(&parts_->source);
    parts_->shared.idle.clock = alloc::os::now_ns;
    parts_->shared.reclaim.join(0, &parts_->source);
    alloc::DeviceParts device = {&parts_->ledger, &parts_->cap};
    device.plan = plan;
    parts_->pool.init(&parts_->shared, &parts_->source, device, 0, sizes);
  }

  uint64_t allocate(uint64_t bytes, unsigned shard = 0) {
    uint64_t address = 0;
    if (parts_->pool.allocate(bytes, shard, &address) != alloc::kSuccess) std::abort();
    return address;
  }

  // As the shim does where there is a plan.
  uint64_t allocate_planned(uint64_t bytes, unsigned shard = 0) {
    uint64_t address = 0;
    if (parts_->pool.allocate_planned(bytes, /*thread=*/shard, 0, &address)) return address;
    return allocate(bytes, shard);
  }
  uint64_t served_planned() const { return parts_->ledger.plan_served.get(); }

  void free(uint64_t address) {
    int code = alloc::kSuccess;
    alloc::Chunk* chunk = parts_->shared.index.find(address);
    if (chunk == nullptr ||
        parts_->pool.free(chunk, address, &code, kNothingPending) != alloc::Freed::done) {
      std::abort();
    }
  }

  // What the program asks for by cuMemGetInfo.
  uint64_t returnable_bytes() { return parts_->pool.returnable_bytes(); }
  // Others may know the block from now on.
  void mark_exported(uint64_t address) {
    if (!parts_->pool.mark_exported(parts_->shared.index.find(address), address)) std::abort();
  }

  uint64_t reserved_peak() const { return parts_->ledger.reserved_peak.get(); }
  uint64_t calls() const {
    const uint64_t of_units = parts_->source.unit_calls();
    const alloc::Ledger& ledger = parts_->ledger;
    return of_units != 0 ? of_units : ledger.obtained.get() + ledger.released.get();
  }
  Totals totals() const { return {reserved_peak(), calls()}; }

 private:
  // As in the shim, all but the source and the clock is zero bytes at the start, which nobody has
  // to write.
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
