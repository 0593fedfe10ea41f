// SPDX-License-Identifier: Apache-2.0
// Which contexts there are: slots, found by handle. A slot is the part of a context's state that
// does not need its pool; order/contexts/context.h adds the rest. Slots are filled by one thread at
// a time (order/contexts/context_life.h) and read without a lock; their memory is never given back.
// Any thread.
//
// *The crowd* is all contexts for which no number is left. The driver alone serves their memory.
// Their work may still touch memory of the others, so together they are one party of reclamation,
// with a number that no context gets. No mark is ever made in them: the party has passed a ticket
// once each of them was synchronised after it, as seen by a hook, or has ended.
//
// A context has a slot or is in the crowd, never both, and stays where it is until it ends.
// context_life.cc adds and removes contexts, one thread at a time; any thread may call the queries
// and crowd_synchronised(). The crowd's table holds kMostInCrowd contexts. If there is one more, no
// memory becomes clean any more (Reclaim::freeze). The table has one lock, never held around a
// driver call.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "allocator/base/source.h"
#include "allocator/reclaim/reclaim.h"
#include "shim/cuda_api.h"
#include "shim/order/barrier/work.h"

namespace cistern::shim {

// A set of contexts, by their numbers. Numbers are reused, so a set that outlives one of its
// contexts may contain a later one instead. It never contains too few.
class ContextSet {
 public:
  static constexpr uint32_t kWords = alloc::Reclaim::kMaxContexts / 64;

  constexpr void add(uint32_t number) { words_[number / 64] |= uint64_t{1} << number % 64; }
  constexpr void add(const ContextSet& other) {
    for (uint32_t i = 0; i < kWords; ++i) words_[i] |= other.words_[i];
  }
  constexpr bool has(uint32_t number) const {
    return (words_[number / 64] >> number % 64 & 1) != 0;
  }
  // Whether there are at least two contexts in the set.
  constexpr bool several() const {
    int count = 0;
    for (const uint64_t word : words_) count += std::popcount(word);
    return count > 1;
  }

  template <typename Visitor>
  constexpr void for_each(Visitor visit) const {
    for (uint32_t i = 0; i < kWords; ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(i * 64 + static_cast<uint32_t>(std::countr_zero(word)));
      }
    }
  }

  friend constexpr bool operator==(const ContextSet&, const ContextSet&) = default;

 private:
  uint64_t words_[kWords] = {};
};

// The source of a party of reclamation that has no memory of its own and whose work is never
// marked: the pools of pinned memory, which submit none, and the crowd. No function of it calls the
// driver.
class UnmarkedSource final : public alloc::MemorySource {
  int obtain(uint64_t, uint64_t*) override { return alloc::kOutOfMemory; }
  int release_for_program(uint64_t, const alloc::OrderedFree*) override { return alloc::kNotNow; }
  int release(uint64_t) override { return alloc::kNotNow; }
  bool mark(alloc::Mark*) override { return false; }
  bool marks_may_come() override { return false; }
  alloc::MarkState query(alloc::Mark) override { return alloc::MarkState::failed; }
  void forget(alloc::Mark) override {}
};

struct ContextSlot {
  std::atomic<CUcontext> handle;    // nullptr: no context has the slot
  std::atomic<uint64_t> id;         // the driver's, which no other context ever has; 0: not known
  std::atomic<CUdevice> device;     // visitors may read it while the slot changes hands
  uint32_t number;                  // context_slot(number) is this one
  std::atomic<uint32_t> suspicion;  // 0: none (order/ask.h)
  std::atomic<bool> careful;        // no hook saw it made (context_life.h)
  std::atomic<int> attached;        // cuCtxAttach calls not yet undone
  std::atomic<int> visitors;        // Visits (context.h), for which the context's end waits
  SeenEmpty seen_empty;
  Unfinished unfinished;
  Debt debt;
};

// How many contexts there are. Only between several of them can there be ties (order/ties.h).
extern constinit std::atomic<int> contexts_living;
inline bool several_contexts() { return contexts_living.load(std::memory_order_relaxed) > 1; }

// The same count, and one more for good where streams are followed (stream_marks.h): whether
// each submission is looked at.
extern constinit std::atomic<int> submissions_looked_at;
inline bool submissions_watched() {
  return submissions_looked_at.load(std::memory_order_relaxed) > 1;
}
// Adds `change` to the count of contexts.
void count_contexts(int change);

// How many EndingScopes (context_life.h) are open. While there is one, the driver may already have
// reused an address that the index still lists for the ending context.
extern constinit std::atomic<int> contexts_ending;

// A new number of a party of reclamation (allocator/reclaim/reclaim.h). Each context has one; the
// pools of pinned memory have one together (pinned_pools.h). Numbers are never given back. -1 if
// all are taken. kCrowd, the last number, stands for all contexts that got none.
int new_reclaim_number();
inline constexpr uint32_t kCrowd = alloc::Reclaim::kMaxContexts - 1;

// How many numbers are in use, and the slot with one of them; nullptr if that is no context's
// number.
int context_slots();
ContextSlot* context_slot(int number);

// The slot of the context with this handle, or nullptr: not pooled, or gone.
ContextSlot* find_context_slot(CUcontext handle);

// Adds a slot, whose number is new. One thread at a time.
void add_context_slot(ContextSlot* slot);

// A number that changes when a context's handle may have been reused. Then earlier results of
// look-ups by handle may be outdated.
uint32_t context_generation();
void handle_changed_meaning();

// The calling thread's context, pooled or not; nullptr without one.
CUcontext current_handle();

inline constexpr int kMostInCrowd = 4096;

// Whether any context is in the crowd; whether this one is. If `id` is not null, it gets the
// driver's id of the context, or 0.
bool crowd_lives();
bool in_crowd(CUcontext handle, uint64_t* id = nullptr);

// Adds a context for which there was no number; false if there is no room. The first one begins the
// party.
bool join_crowd(CUcontext handle, uint64_t id);
// A context of the crowd ended. True if it was the last, and so the party is over. Does nothing if
// the handle was reused for another context.
bool leave_crowd(CUcontext handle, uint64_t id);
// The program synchronised it; `ticket` was closed before.
void crowd_synchronised(CUcontext handle, alloc::Ticket ticket);

void reset_crowd_after_fork();

}  // namespace cistern::shim
