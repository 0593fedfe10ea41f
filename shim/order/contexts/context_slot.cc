// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context_slot.h"

#include "shim/entry/driver.h"

namespace cistern::shim {
namespace {

constinit std::atomic<ContextSlot*> slots[alloc::Reclaim::kMaxContexts] = {};
constinit std::atomic<int> numbers{0};
constinit std::atomic<uint32_t> generation{1};

}  // namespace

constinit std::atomic<int> contexts_living{0};
constinit std::atomic<int> submissions_looked_at{0};

void count_contexts(int change) {
  contexts_living.fetch_add(change);
  submissions_looked_at.fetch_add(change);
}

constinit std::atomic<int> contexts_ending{0};

int new_reclaim_number() {
  int number = numbers.load(std::memory_order_relaxed);
  do {
    if (number == static_cast<int>(kCrowd)) return -1;
  } while (!numbers.compare_exchange_weak(number, number + 1, std::memory_order_acq_rel));
  return number;
}

int context_slots() { return numbers.load(std::memory_order_acquire); }

ContextSlot* context_slot(int number) { return slots[number].load(std::memory_order_acquire); }

ContextSlot* find_context_slot(CUcontext handle) {
  for (int i = 0, n = context_slots(); i < n; ++i) {
    ContextSlot* slot = context_slot(i);
    if (slot != nullptr && slot->handle.load(std::memory_order_acquire) == handle) return slot;
  }
  return nullptr;
}

void add_context_slot(ContextSlot* slot) {
  slots[slot->number].store(slot, std::memory_order_release);
}

uint32_t context_generation() { return generation.load(std::memory_order_acquire); }

void handle_changed_meaning() { generation.fetch_add(1, std::memory_order_acq_rel); }

CUcontext current_handle() {
  CUcontext handle = nullptr;
  return driver().cuCtxGetCurrent(&handle) == CUDA_SUCCESS ? handle : nullptr;
}

}  // namespace cistern::shim
