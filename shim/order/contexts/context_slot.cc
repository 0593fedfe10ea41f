// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context_slot.h"

#include <algorithm>

#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/order/shared.h"

namespace cistern::shim {
namespace {

constinit std::atomic<ContextSlot*> slots[alloc::Reclaim::kMaxContexts] = {};
constinit std::atomic<int> numbers{0};
constinit std::atomic<uint32_t> generation{1};

struct Member {
  CUcontext handle;
  uint64_t id;  // the driver's; 0: not known
  alloc::Ticket passed_end;
};

constinit alloc::Mutex crowd_mutex;  // guards the members
constinit Member members[kMostInCrowd] = {};
constinit std::atomic<int> count{0};
constinit UnmarkedSource source;

// Caller holds the lock.
Member* find(CUcontext handle) {
  Member* end = members + count.load(std::memory_order_relaxed);
  Member* found = std::find_if(members, end, [=](const Member& m) { return m.handle == handle; });
  return found == end ? nullptr : found;
}

// Caller holds the lock. All members have passed what the last of them has passed.
void advance() {
  const Member* first = members;
  const Member* end = first + count.load(std::memory_order_relaxed);
  const Member* last = std::min_element(
      first, end, [](const Member& a, const Member& b) { return a.passed_end < b.passed_end; });
  if (last != end) shared().reclaim.passed(kCrowd, last->passed_end - 1);
}

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

bool crowd_lives() { return count.load(std::memory_order_acquire) != 0; }

bool in_crowd(CUcontext handle, uint64_t* id) {
  if (!crowd_lives()) return false;
  const alloc::LockGuard guard(crowd_mutex);
  const Member* member = find(handle);
  if (member != nullptr && id != nullptr) *id = member->id;
  return member != nullptr;
}

bool join_crowd(CUcontext handle, uint64_t id) {
  const alloc::LockGuard guard(crowd_mutex);
  if (find(handle) != nullptr) return true;
  const int before = count.load(std::memory_order_relaxed);
  if (before == kMostInCrowd) return false;
  if (before == 0) shared().reclaim.join(kCrowd, &source);
  members[before] = {handle, id, shared().reclaim.close() + 1};
  count.store(before + 1, std::memory_order_release);
  count_contexts(1);
  return true;
}

bool leave_crowd(CUcontext handle, uint64_t id) {
  const alloc::LockGuard guard(crowd_mutex);
  Member* member = find(handle);
  if (member == nullptr || member->id != id) return false;
  const int left = count.load(std::memory_order_relaxed) - 1;
  *member = members[left];
  count.store(left, std::memory_order_release);
  handle_changed_meaning();
  count_contexts(-1);
  if (left != 0) {
    advance();
    return false;
  }
  shared().reclaim.leave(kCrowd);
  return true;
}

void crowd_synchronised(CUcontext handle, alloc::Ticket ticket) {
  const alloc::LockGuard guard(crowd_mutex);
  Member* member = find(handle);
  if (member == nullptr) return;
  member->passed_end = std::max(member->passed_end, ticket + 1);
  advance();
}

void reset_crowd_after_fork() { crowd_mutex.reset(); }

// --- contexts that were seen empty (barrier/work.h) ---

constinit std::atomic<uint64_t> contexts_seen_empty{0};

namespace {

constinit std::atomic<uint64_t> times_expected{0};

}  // namespace

// Store the state before the number: a thread that finds the number ends the state.
void SeenEmpty::expect(alloc::Ticket ticket) {
  if ((state_.load(std::memory_order_seq_cst) & kBy) != 0) return;
  state_.store(expecting(ticket), std::memory_order_seq_cst);
  contexts_seen_empty.store(times_expected.fetch_add(1) + 1, std::memory_order_seq_cst);
  submissions_are_not_quiet();
}

void SeenEmpty::confirm(alloc::Ticket ticket, By by) {
  uint64_t state = expecting(ticket);
  state_.compare_exchange_strong(state, state | static_cast<uint64_t>(by),
                                 std::memory_order_seq_cst);
}

}  // namespace cistern::shim
