// SPDX-License-Identifier: Apache-2.0
#include "allocator/waiting_memory.h"

#include <algorithm>

namespace cistern::alloc {
namespace {

// With more than this waiting an allocation waits for earlier work, as a plain cudaFree would have
// made the program wait, but never longer than kUsualWaitNs, so that a kernel that never ends
// cannot hang it.
constexpr uint64_t kWaitingBudget = uint64_t{256} << 20;
constexpr uint64_t kWaitingShare = 10;  // or a tenth of what is live

}  // namespace

void WaitingMemory::init(ContextMemory* memory) {
  memory_ = memory;
  freed_unmarked_.set(0);
}

WaitingMemory::Asked WaitingMemory::ask() {
  Reclaim& reclaim = memory_->shared->reclaim;
  const Ticket before = reclaim.clean();
  Ticket oldest, newest;
  if (!memory_->waiting_range(&oldest, &newest)) return Asked::nothing_waits;
  if (newest <= before) return Asked::nothing_new;
  reclaim.poll();
  if (reclaim.clean() < newest && reclaim.mark(newest)) reclaim.poll();
  return reclaim.clean() != before ? Asked::some_clean : Asked::nothing_new;
}

bool WaitingMemory::wait(uint64_t limit_ns) {
  Reclaim& reclaim = memory_->shared->reclaim;
  const Ticket before = reclaim.clean();
  Ticket oldest, newest;
  if (!memory_->waiting_range(&oldest, &newest) || newest <= before) return false;
  const CountedWait counted(memory_->ledger);
  reclaim.mark(newest);
  return reclaim.wait(std::max(oldest, before + 1), limit_ns);
}

bool WaitingMemory::too_much() const {
  const uint64_t budget = std::max(kWaitingBudget, memory_->ledger->live.get() / kWaitingShare);
  return memory_->waiting_bytes() > budget;
}

uint64_t WaitingMemory::obtain_ns() const {
  return std::min(memory_->supply.obtain_ns(), kUsualWaitNs);
}

// A program that synchronises by itself has nothing waiting here, and needs no mark.
void WaitingMemory::mark_beyond_budget() {
  const ChunkCache& cache = memory_->supply.cache;
  const uint64_t budget =
      std::max(kUnmarkedBudget, memory_->ledger->reserved.get() / kUnmarkedShare);
  if (freed_unmarked_.get() < budget || cache.waiting_bytes() < budget) return;
  Reclaim& reclaim = memory_->shared->reclaim;
  Ticket oldest, newest;
  if (!memory_->supply.cache.waiting_range(&oldest, &newest)) return;
  reclaim.poll();
  if (reclaim.mark(newest)) freed_unmarked_.set(0);
}

}  // namespace cistern::alloc
