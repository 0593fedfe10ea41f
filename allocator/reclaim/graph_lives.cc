// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/graph_lives.h"

#include <algorithm>

namespace cistern::alloc {
namespace {

constexpr Epoch kLast = UINT32_MAX;

// If more than this is parked in one context, the oldest block leaves.
constexpr uint64_t kParkedBudget = uint64_t{64} << 20;
constexpr uint64_t kParkedShare = 8;  // or this part of what is live

}  // namespace

bool ParkedTotal::too_much() const {
  const uint64_t live = ledger_ == nullptr ? 0 : ledger_->live.get();
  return bytes_.get() > std::max(kParkedBudget, live / kParkedShare);
}

void GraphLives::divert_everything() {
  everything_diverted_.store(true);
  diverted_before_.store(kEverything, std::memory_order_release);
}

Epoch GraphLives::tick() {
  const Epoch next = std::min(now() + 1, kLast);
  now_.store(next, std::memory_order_release);
  return next;
}

Epoch GraphLives::begin() {
  LockGuard guard(mutex_);
  return tick();
}

void GraphLives::hold(GraphLife* life, Epoch begin, Ticket now) {
  LockGuard guard(mutex_);
  const bool less = life->end != 0 && begin > life->begin;
  const bool watched = life->watched;
  if (life->end != 0) unlink(life);
  life->begin = begin;
  life->end = tick();
  life->watched = watched && !less;
  link(life);
  change(now, less, watched);
}

void GraphLives::release(GraphLife* life, Ticket now) {
  LockGuard guard(mutex_);
  if (life->end == 0) return;
  const bool watched = life->watched;
  unlink(life);
  change(now, /*less=*/true, watched);
}

void GraphLives::capturing(Epoch begin, Ticket now) {
  LockGuard guard(mutex_);
  const bool less = capturing_ && begin > capturing_since_;
  const bool watched = capturing_watched_;
  capturing_ = begin != kEverything;
  capturing_since_ = begin;
  capturing_watched_ = watched && !less;
  change(now, less, watched);
}

void GraphLives::link(GraphLife* life) {
  life->older = newest_;
  life->newer = nullptr;
  if (newest_ != nullptr) newest_->newer = life;
  newest_ = life;
}

void GraphLives::unlink(GraphLife* life) {
  (life->newer == nullptr ? newest_ : life->newer->older) = life->older;
  if (life->older != nullptr) life->older->newer = life->newer;
  life->end = 0;
  life->watched = false;
}

// The order matters: covers_gone() covers the graph's work before a thread can see that the graph
// has gone. A thread that sees the change also sees which graphs are left.
void GraphLives::change(Ticket now, bool less, bool watched) {
  if (less) gone_.store(std::max(now, covers_gone()), std::memory_order_relaxed);
  const Epoch made = newest_ == nullptr ? 0 : newest_->end;
  const Epoch newest = capturing_ ? kEverything : made;
  newest_end_.store(newest, std::memory_order_release);
  if (!everything_diverted_.load()) diverted_before_.store(newest, std::memory_order_release);
  if (less && watched) watched_changes_.fetch_add(1, std::memory_order_release);
  if (less) changes_.fetch_add(1, std::memory_order_release);
}

// A graph that was begun after the free of one block was also begun after every earlier free. Among
// the others the newest has the latest end.
bool GraphLives::Look::held(Epoch born, Epoch freed) {
  if (lives_.capturing_ && lives_.capturing_since_ <= freed) {
    lives_.capturing_watched_ = true;
    return true;
  }
  while (life_ != nullptr && life_->begin > freed) life_ = life_->older;
  if (life_ == nullptr || life_->end <= born) return false;
  life_->watched = true;
  return true;
}

}  // namespace cistern::alloc
