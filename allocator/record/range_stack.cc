// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/range_stack.h"

#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc {

RangeStack::Domain* RangeStack::find(uint32_t domain) {
  for (unsigned i = 0; i < domains_used; ++i) {
    if (domains[i].name == domain) return &domains[i];
  }
  return nullptr;
}

// What came after one that had no room has none either, or pops would take the wrong ones.
bool RangeStack::has_room(uint32_t domain) const {
  if (depth == kMostDeep) return false;
  const Domain* d = const_cast<RangeStack*>(this)->find(domain);
  return d == nullptr || d->beyond == 0;
}

int RangeStack::push(const Entry& entry) {
  Domain* d = find(entry.domain);
  for (unsigned i = 0; d == nullptr && i < domains_used; ++i) {
    if (domains[i].pushed == 0) *(d = &domains[i]) = {entry.domain, 0, 0};
  }
  if (d == nullptr) {
    if (domains_used == kMostDomains) return kNotTracked;
    *(d = &domains[domains_used++]) = {entry.domain, 0, 0};
  }
  if (depth == kMostDeep || d->beyond != 0) {
    ++d->beyond;
  } else {
    entries[depth++] = entry;
  }
  return static_cast<int>(d->pushed++);
}

RangeStack::Popped RangeStack::pop(uint32_t domain) {
  Domain* d = find(domain);
  if (d == nullptr || d->pushed == 0) return {kNothingPushed, false, {}};
  Popped popped{static_cast<int>(--d->pushed), d->beyond == 0, {}};
  if (d->beyond != 0) {
    --d->beyond;
    return popped;
  }
  unsigned i = depth - 1;
  while (entries[i].domain != domain || entries[i].start != 0) --i;
  take_out(i, &popped.entry);
  return popped;
}

bool RangeStack::start(const Entry& entry) {
  if (depth == kMostDeep) return false;
  entries[depth++] = entry;
  return true;
}

bool RangeStack::end(uint64_t start, Entry* out) {
  for (unsigned i = depth; i-- > 0;) {
    if (entries[i].start != start) continue;
    take_out(i, out);
    return true;
  }
  return false;
}

bool RangeStack::end_of_domain(uint32_t domain, Entry* out) {
  if (Domain* d = find(domain)) d->pushed = d->beyond = 0;
  for (unsigned i = depth; i-- > 0;) {
    if (entries[i].domain != domain) continue;
    take_out(i, out);
    return true;
  }
  return false;
}

void RangeStack::take_out(unsigned index, Entry* out) {
  *out = entries[index];
  --depth;
  std::memmove(entries + index, entries + index + 1, (depth - index) * sizeof(Entry));
}

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
    tables = static_cast<Tables*>(os::map(sizeof(Tables)));
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
