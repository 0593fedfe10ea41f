// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/range_tree.h"

#include "allocator/base/os.h"

namespace cistern::alloc {

// A node is complete before it stands in its bucket, and does not change.
uint32_t RangeTree::known(uint32_t parent, uint32_t name) const {
  const Tables* tables = tables_.load(std::memory_order_acquire);
  if (tables == nullptr) return 0;
  const Node* nodes = tables->nodes;
  uint32_t i = tables->buckets[bucket_of(parent, name)].load(std::memory_order_acquire);
  while (i != 0 && (nodes[i].parent != parent || nodes[i].name != name)) i = nodes[i].next;
  return i;
}

RangeTree::Found RangeTree::range(uint32_t parent, uint32_t name) {
  if (const uint32_t range = known(parent, name)) return {range, false};
  const LockGuard guard(mutex_);
  if (const uint32_t range = known(parent, name)) return {range, false};
  const uint32_t last = count_.load(std::memory_order_relaxed);
  if (last == kMostRanges) return {0, false};
  Tables* tables = tables_.load(std::memory_order_relaxed);
  if (tables == nullptr) {
    tables = static_cast<Tables*>(os::map(sizeof(Tables), 4096));
    if (tables == nullptr) return {0, false};
    tables_.store(tables, std::memory_order_release);
  }
  std::atomic<uint32_t>& bucket = tables->buckets[bucket_of(parent, name)];
  tables->nodes[last + 1] = {parent, name, bucket.load(std::memory_order_relaxed)};
  // Counted first: in a child forked between the two, the number is not handed out again.
  count_.store(last + 1, std::memory_order_release);
  bucket.store(last + 1, std::memory_order_release);
  return {last + 1, true};
}

}  // namespace cistern::alloc
