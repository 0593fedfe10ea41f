// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/call_sites.h"

#include <algorithm>

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

// FNV-1a over the fields.
uint32_t hash_of(const Frame* frames, int count) {
  uint64_t hash = 14695981039346656037u;
  const auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (int i = 0; i < count; ++i) {
    mix(frames[i].file);
    mix(frames[i].function);
    mix(frames[i].line);
    mix(frames[i].offset);
  }
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

}  // namespace

uint32_t CallSites::known(uint64_t hash) const {
  const std::atomic<uint64_t>* slots = slots_.load(std::memory_order_acquire);
  if (slots == nullptr) return 0;
  for (size_t way = 0; way < kWays; ++way) {
    const uint64_t slot = slots[(hash + way) % kSlots].load(std::memory_order_acquire);
    if ((slot ^ hash) >> kSiteBits == 0) return slot % (1u << kSiteBits);
  }
  return 0;
}

uint32_t CallSites::add(uint64_t hash, const Frame* frames, int count) {
  const LockGuard guard(mutex_);
  const uint32_t site = make_room() ? site_with(frames, count) : 0;
  if (site != 0) remember(hash, site);
  return site;
}

int CallSites::frames(uint32_t site, Frame* out) const {
  const Site& s = sites_[site];
  std::copy_n(frames_ + s.first_frame, s.frames, out);
  return static_cast<int>(s.frames);
}

// The tables: demand-paged, so that few sites take few pages.
bool CallSites::make_room() {
  const auto table = [](auto& where, size_t entries) {
    using Entry = std::remove_reference_t<decltype(*where)>;
    if (where == nullptr) where = static_cast<Entry*>(os::map(entries * sizeof(Entry)));
    return where != nullptr;
  };
  if (slots_.load(std::memory_order_relaxed) != nullptr) return true;
  if (!table(sites_, kMostSites + 1) || !table(frames_, kMostFramesKept) ||
      !table(buckets_, kBuckets)) {
    return false;
  }
  std::atomic<uint64_t>* slots = nullptr;
  if (!table(slots, kSlots)) return false;
  slots_.store(slots, std::memory_order_release);
  return true;
}

uint32_t CallSites::site_with(const Frame* frames, int count) {
  const uint32_t hash = hash_of(frames, count);
  uint32_t& bucket = buckets_[hash % kBuckets];
  const auto length = static_cast<uint32_t>(count);
  for (uint32_t i = bucket; i != 0; i = sites_[i].next) {
    const Site& s = sites_[i];
    if (s.hash == hash && s.frames == length &&
        std::equal(frames, frames + count, frames_ + s.first_frame)) {
      return i;
    }
  }
  const uint32_t last = count_.load(std::memory_order_relaxed);
  if (last == kMostSites || kMostFramesKept - frames_kept_ < length) return 0;
  std::copy_n(frames, count, frames_ + frames_kept_);
  sites_[last + 1] = {hash, bucket, frames_kept_, length};
  frames_kept_ += length;
  // In this order: in a child forked between the two, the number is not handed out again.
  count_.store(last + 1, std::memory_order_release);
  bucket = last + 1;
  return last + 1;
}

// In an empty slot, else in place of another hash. The lock is held.
void CallSites::remember(uint64_t hash, uint32_t site) {
  std::atomic<uint64_t>* slots = slots_.load(std::memory_order_relaxed);
  size_t chosen = (hash + (hash >> 32) % kWays) % kSlots;
  for (size_t way = 0; way < kWays; ++way) {
    const uint64_t slot = slots[(hash + way) % kSlots].load(std::memory_order_relaxed);
    if (slot == 0 || (slot ^ hash) >> kSiteBits == 0) {
      chosen = (hash + way) % kSlots;
      break;
    }
  }
  slots[chosen].store((hash >> kSiteBits << kSiteBits) | site, std::memory_order_release);
}

}  // namespace cistern::alloc
