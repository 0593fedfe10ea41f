// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/observer.h"

#include <algorithm>

namespace cistern::alloc::plan {

bool Observer::start() {
  LockGuard guard(mutex_);
  count_ = 0;
  total_.store(0, std::memory_order_relaxed);
  look_at_.store(kFirstLook, std::memory_order_relaxed);
  calls_ = 0;
  if (seen_.make(kMost) && buckets_.make(kBuckets)) return true;
  seen_ = {};
  return false;
}

void Observer::stop() {
  LockGuard guard(mutex_);
  seen_ = {};
  buckets_ = {};
}

bool Observer::allocated(uint64_t bytes, const Caller& caller, uint64_t address) {
  LockGuard guard(mutex_);
  if (seen_.size() == 0) return false;
  if (count_ == kMost) forget_half();
  seen_[count_] = {bytes, calls_++, kLive, address, caller, 0};
  enter(count_++);
  const uint64_t total = total_.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t look_at = look_at_.load(std::memory_order_relaxed);
  return total >= look_at && (total - look_at) % kFirstLook == 0;
}

void Observer::freed(uint64_t address) {
  LockGuard guard(mutex_);
  if (seen_.size() == 0) return;
  for (uint32_t* link = &buckets_[bucket_of(address)]; *link != 0;) {
    Seen& seen = seen_[*link - 1];
    if (seen.address != address) {
      link = &seen.next;
      continue;
    }
    seen.to = calls_++;
    *link = seen.next;
    return;
  }
}

void Observer::enter(uint32_t number) {
  uint32_t& bucket = buckets_[bucket_of(seen_[number].address)];
  seen_[number].next = bucket;
  bucket = number + 1;
}

// Times stay as they are; look() counts from the first one.
void Observer::forget_half() {
  constexpr uint32_t kHalf = kMost / 2;
  std::copy(seen_.begin() + kHalf, seen_.end(), seen_.begin());
  std::fill(buckets_.begin(), buckets_.end(), 0);
  for (uint32_t i = 0; i < kHalf; ++i) {
    if (seen_[i].to == kLive) enter(i);
  }
  count_ = kHalf;
}

bool Observer::look(Observed* out) {
  LockGuard guard(mutex_);
  const uint64_t total = total_.load(std::memory_order_relaxed);
  look_at_.store(total + std::clamp<uint64_t>(total, kFirstLook, kMost / 2),
                 std::memory_order_relaxed);
  if (seen_.size() == 0 || count_ == 0 || !out->make(count_)) return false;
  const uint64_t first = seen_[0].from;
  out->calls = calls_ - first;
  for (uint32_t i = 0; i < count_; ++i) {
    const Seen& seen = seen_[i];
    const uint64_t to = seen.to == kLive ? out->calls : seen.to - first;
    out->lives[i] = {.from = seen.from - first, .to = to, .bytes = seen.bytes};
    out->origins[i] = seen.caller.origin;
    out->phases[i] = seen.caller.phase;
    out->threads[i] = static_cast<uint16_t>(seen.caller.thread);
  }
  return true;
}

}  // namespace cistern::alloc::plan
