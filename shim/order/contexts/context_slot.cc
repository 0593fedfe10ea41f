// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context_slot.h"

#include "allocator/reclaim/reclaim.h"
#include "shim/entry/driver.h"

namespace cistern::shim {
namespace {

constinit std::atomic<ContextSlot*> slots[alloc::Reclaim::kMaxContexts] = {};
constinit std::atomic<int> slots_used{0};
constinit std::atomic<uint32_t> generation{1};

}  // namespace

constinit std::atomic<int> contexts_living{0};

constinit std::atomic<int> contexts_ending{0};

int context_slots() { return slots_used.load(std::memory_order_acquire); }

ContextSlot* context_slot(int number) { return slots[number].load(std::memory_order_acquire); }

ContextSlot* find_context_slot(CUcontext handle) {
  for (int i = 0, n = context_slots(); i < n; ++i) {
    ContextSlot* slot = context_slot(i);
    if (slot->handle.load(std::memory_order_acquire) == handle) return slot;
  }
  return nullptr;
}

void add_context_slot(ContextSlot* slot) {
  const int used = context_slots();
  slots[used].store(slot, std::memory_order_release);
  slots_used.store(used + 1, std::memory_order_release);
}

uint32_t context_generation() { return generation.load(std::memory_order_acquire); }

void handle_changed_meaning() { generation.fetch_add(1, std::memory_order_acq_rel); }

CUcontext current_handle() {
  CUcontext handle = nullptr;
  return driver().cuCtxGetCurrent(&handle) == CUDA_SUCCESS ? handle : nullptr;
}

}  // namespace cistern::shim
