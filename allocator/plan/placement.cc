// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/placement.h"

#include <algorithm>
#include <cstring>

namespace cistern::alloc::plan {

bool Placement::make(const Problem& problem) {
  constexpr uint64_t kBucketsOfBlock = 2;
  blocks_ = problem.blocks();
  const size_t sections = problem.live().size();
  uint64_t entries = 0;
  for (shift_ = 0; shift_ < 32; ++shift_) {
    entries = 0;
    for (const Block& block : blocks_) {
      entries += bucket_of(block.last) - bucket_of(block.first) + 1;
    }
    if (entries <= kBucketsOfBlock * blocks_.size()) break;
  }
  const uint32_t buckets = sections == 0 ? 0 : bucket_of(static_cast<uint32_t>(sections - 1)) + 1;
  if (!buckets_.make(buckets) || !entries_.make(entries) || !offsets_.make(blocks_.size())) {
    return false;
  }
  for (const Block& block : blocks_) {
    for (uint32_t i = bucket_of(block.first); i <= bucket_of(block.last); ++i) {
      ++buckets_[i].begin;  // the count, until the offsets are known
    }
  }
  uint64_t begin = 0;
  for (Bucket& bucket : buckets_) {
    begin += std::exchange(bucket.begin, begin);
  }
  return true;
}

void Placement::clear() {
  for (Bucket& bucket : buckets_) bucket.size = 0;
}

uint64_t Placement::bytes() const { return buckets_.bytes() + entries_.bytes() + offsets_.bytes(); }

// Moves the cursor up to the lowest offset not below it at which the bucket has room. True if it
// moved. An entry that starts below the end of the block that is searched for has been dealt with
// for good: the cursor never goes back.
bool Placement::advance(Bucket& bucket, const Block& block, uint64_t& cursor) {
  const Entry* const entries = entries_.begin() + bucket.begin;
  const uint64_t before = cursor;
  uint32_t i = bucket.next;
  for (; i < bucket.size && entries[i].offset < cursor + block.bytes; ++i) {
    // Without a jump: which entries overlap is as good as random.
    const Entry& entry = entries[i];
    const bool overlaps = (entry.first <= block.last) & (block.first <= entry.last);
    cursor = std::max(cursor, entry.end & -uint64_t{overlaps});
  }
  steps_ += i - bucket.next + 1;
  bucket.next = i;
  return cursor != before;
}

void Placement::begin_search(const Block& block) {
  for (uint32_t i = bucket_of(block.first); i <= bucket_of(block.last); ++i) buckets_[i].next = 0;
}

void Placement::search(const Block& block, uint64_t& cursor) {
  const uint32_t first = bucket_of(block.first), last = bucket_of(block.last);
  const uint32_t count = last - first + 1;
  uint32_t agreed = 0;
  for (uint32_t i = first; agreed < count; i = i == last ? first : i + 1) {
    agreed = advance(buckets_[i], block, cursor) ? 1 : agreed + 1;
  }
}

// Where the gap ends that search() found.
uint64_t Placement::next_above(const Block& block) {
  uint64_t lowest = UINT64_MAX;
  for (uint32_t i = bucket_of(block.first); i <= bucket_of(block.last); ++i) {
    const Bucket& bucket = buckets_[i];
    const Entry* const entries = entries_.begin() + bucket.begin;
    for (uint32_t next = bucket.next; next < bucket.size; ++next, ++steps_) {
      const Entry& entry = entries[next];
      if (entry.offset >= lowest) break;
      if (entry.first <= block.last && block.first <= entry.last) lowest = entry.offset;
    }
  }
  return lowest;
}

uint64_t Placement::fit_from(uint32_t block, uint64_t cursor) {
  begin_search(blocks_[block]);
  search(blocks_[block], cursor);
  return cursor;
}

uint64_t Placement::best_fit(uint32_t block) {
  uint64_t best = 0, best_gap = UINT64_MAX;
  begin_search(blocks_[block]);
  for (uint64_t cursor = 0;;) {
    search(blocks_[block], cursor);
    const uint64_t end = next_above(blocks_[block]);
    if (end == UINT64_MAX) return best_gap == UINT64_MAX ? cursor : best;
    if (end - cursor < best_gap) {
      best = cursor;
      best_gap = end - cursor;
    }
    cursor = end;
  }
}

size_t Placement::in_the_way(uint32_t block, uint64_t offset, uint64_t end,
                             std::span<uint32_t> out) {
  const Block& what = blocks_[block];
  size_t found = 0;
  for (uint32_t i = bucket_of(what.first); i <= bucket_of(what.last); ++i) {
    const Entry* const entries = entries_.begin() + buckets_[i].begin;
    for (uint32_t at = 0; at < buckets_[i].size && entries[at].offset < end; ++at, ++steps_) {
      const Entry& entry = entries[at];
      const bool overlaps = entry.first <= what.last && what.first <= entry.last;
      if (!overlaps || entry.end <= offset || entry.block == block) continue;
      if (found == out.size()) return found;
      out[found++] = entry.block;
    }
  }
  return found;
}

// Of one that is in several buckets the first counts that is the block's, too. Without jumps where
// they would go either way as often.
size_t Placement::neighbours(uint32_t block, Array<Neighbour>& out, Array<Neighbour>& other) {
  constexpr uint32_t kMostMerged = 8;
  const Block& what = blocks_[block];
  const uint32_t first = bucket_of(what.first), last = bucket_of(what.last);
  const bool merges = last - first < kMostMerged;
  const size_t most = out.size() - 1;
  size_t count = 0;
  for (uint32_t i = first; i <= last; ++i) {
    const size_t before = count;
    const Bucket& bucket = buckets_[i];
    const Entry* const entries = entries_.begin() + bucket.begin;
    for (uint32_t at = 0; at < bucket.size; ++at) {
      const Entry& entry = entries[at];
      out[std::min(count, most)] = {entry.offset, entry.end, entry.block};
      const bool overlaps = (entry.first <= what.last) & (what.first <= entry.last);
      count += overlaps & (std::max(bucket_of(entry.first), first) == i);
    }
    steps_ += bucket.size;
    if (count > most) return out.size() + 1;
    if (!merges || before == 0 || before == count) continue;
    merge(out.span().first(before), out.span().subspan(before, count - before), other.begin());
    std::swap(out, other);
  }
  if (!merges) {
    std::sort(out.begin(), out.begin() + count,
              [](const Neighbour& a, const Neighbour& b) { return a.offset < b.offset; });
  }
  return count;
}

// std::merge() without jumps.
void Placement::merge(std::span<const Neighbour> one, std::span<const Neighbour> other,
                      Neighbour* out) {
  const Neighbour *a = one.data(), *const a_end = a + one.size();
  const Neighbour *b = other.data(), *const b_end = b + other.size();
  while (a != a_end && b != b_end) {
    const bool takes_b = b->offset < a->offset;
    *out++ = *(takes_b ? b : a);
    a += !takes_b;
    b += takes_b;
  }
  std::copy(b, b_end, std::copy(a, a_end, out));
}

void Placement::insert(uint32_t block, uint64_t offset) {
  const Block& what = blocks_[block];
  const Entry entry = {offset, offset + what.bytes, what.first, what.last, block};
  offsets_[block] = offset;
  for (uint32_t i = bucket_of(what.first); i <= bucket_of(what.last); ++i) {
    Bucket& bucket = buckets_[i];
    Entry* const begin = entries_.begin() + bucket.begin;
    Entry* const end = begin + bucket.size;
    Entry* const at = std::upper_bound(
        begin, end, offset, [](uint64_t o, const Entry& other) { return o < other.offset; });
    std::memmove(at + 1, at, static_cast<size_t>(end - at) * sizeof(Entry));
    *at = entry;
    ++bucket.size;
  }
}

void Placement::remove(uint32_t block) {
  const Block& what = blocks_[block];
  const uint64_t offset = offsets_[block];
  for (uint32_t i = bucket_of(what.first); i <= bucket_of(what.last); ++i) {
    Bucket& bucket = buckets_[i];
    Entry* const begin = entries_.begin() + bucket.begin;
    Entry* const end = begin + bucket.size;
    Entry* at = std::lower_bound(begin, end, offset,
                                 [](const Entry& other, uint64_t o) { return other.offset < o; });
    while (at->block != block) ++at;  // others at this offset live at other times
    std::memmove(at, at + 1, static_cast<size_t>(end - at - 1) * sizeof(Entry));
    --bucket.size;
  }
}

}  // namespace cistern::alloc::plan
