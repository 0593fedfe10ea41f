// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/names.h"

#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kTextBytes = size_t{256} << 10;  // mapped at a time

// FNV-1a.
uint32_t hash_of(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

}  // namespace

uint32_t Names::number(std::string_view text) {
  text = text.substr(0, kLongest);
  const uint32_t hash = hash_of(text);
  const LockGuard guard(mutex_);
  if (!make_room()) return 0;
  Name* names = names_.load(std::memory_order_relaxed);
  uint32_t& bucket = buckets_[hash % kBuckets];
  for (uint32_t i = bucket; i != 0; i = names[i].next) {
    if (names[i].hash == hash && names[i].text == text) return i;
  }
  const uint32_t last = count_.load(std::memory_order_relaxed);
  if (last == kMostNames) return 0;
  const char* kept = keep(text);
  if (kept == nullptr) return 0;
  names[last + 1] = {hash, bucket, kept};
  bucket = last + 1;
  count_.store(last + 1, std::memory_order_release);
  return last + 1;
}

const char* Names::text(uint32_t name) const {
  return name == 0 ? "" : names_.load(std::memory_order_acquire)[name].text;
}

// The tables: demand-paged, so that few names take few pages.
bool Names::make_room() {
  if (names_.load(std::memory_order_relaxed) != nullptr) return true;
  if (buckets_ == nullptr) {
    buckets_ = static_cast<uint32_t*>(os::map(kBuckets * sizeof(uint32_t), kPage));
  }
  if (buckets_ == nullptr) return false;
  names_.store(static_cast<Name*>(os::map((kMostNames + 1) * sizeof(Name), kPage)));
  return names_.load(std::memory_order_relaxed) != nullptr;
}

const char* Names::keep(std::string_view text) {
  if (left_ < text.size() + 1) {
    if (mapped_ == kMostBytes) return nullptr;
    text_ = static_cast<char*>(os::map(kTextBytes, kPage));
    left_ = text_ == nullptr ? 0 : kTextBytes;
    mapped_ += left_;
    if (text_ == nullptr) return nullptr;
  }
  char* kept = text_;
  std::memcpy(kept, text.data(), text.size());  // the mapping is zeros
  text_ += text.size() + 1;
  left_ -= text.size() + 1;
  return kept;
}

}  // namespace cistern::alloc
