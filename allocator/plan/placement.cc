// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/packings.h"

#include <algorithm>
#include <cstring>

namespace cistern::alloc::plan {
namespace {

// A block with fewer bytes than this part of the lower bound is small.
constexpr uint64_t kSmallParts = 1024;

// For a heap with the lowest end on top.
constexpr auto kEndsLater = [](const auto& a, const auto& b) { return a.end > b.end; };

}  // namespace

bool Placement::make(const Problem& problem) {
  constexpr uint64_t kBucketsOfBlock = 2;
  blocks_ = problem.blocks();
  small_below_ = problem.lower_bound() / kSmallParts;
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
  if (!buckets_.make(buckets) || !entries_.make(entries) || !offsets_.make(blocks_.size()) ||
      !taken_.make(blocks_.size() + 1)) {
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
  tallest_ = 0;
  for (Bucket& bucket : buckets_) bucket.size = 0, bucket.small = 0;
}

uint64_t Placement::bytes() const {
  return buckets_.bytes() + entries_.bytes() + offsets_.bytes() + taken_.bytes();
}

// Moves the cursor up to the lowest offset not below it at which the bucket has room. True if it
// moved. Entries that start below the end of the searched block need no second look, because the
// cursor never goes back.
bool Placement::advance(Bucket& bucket, const Block& block, uint64_t& cursor) {
  const Entry* const entries = entries_.begin() + bucket.begin;
  const uint64_t before = cursor;
  uint32_t i = bucket.next;
  for (; i < bucket.size && entries[i].offset < cursor + block.bytes; ++i) {
    // Branch-free, because it is unpredictable which entries overlap.
    const Entry& entry = entries[i];
    const bool overlaps = (entry.first <= block.last) & (block.first <= entry.last);
    cursor = std::max(cursor, entry.end & -uint64_t{overlaps});
  }
  steps_ += i - bucket.next + 1;
  bucket.next = i;
  return cursor != before;
}

// Begins at the first entries that may reach beyond the cursor.
void Placement::begin_search(const Block& block, uint64_t cursor) {
  for (uint32_t i = bucket_of(block.first); i <= bucket_of(block.last); ++i) {
    Bucket& bucket = buckets_[i];
    bucket.next = 0;
    if (cursor <= tallest_) continue;
    const Entry* const begin = entries_.begin() + bucket.begin;
    const Entry* const at =
        std::lower_bound(begin, begin + bucket.size, cursor - tallest_,
                         [](const Entry& entry, uint64_t offset) { return entry.offset < offset; });
    bucket.next = static_cast<uint32_t>(at - begin);
  }
}

void Placement::search(const Block& block, uint64_t& cursor) {
  const uint32_t first = bucket_of(block.first), last = bucket_of(block.last);
  const uint32_t count = last - first + 1;
  uint32_t agreed = 0;
  for (uint32_t i = first; agreed < count; i = i == last ? first : i + 1) {
    agreed = advance(buckets_[i], block, cursor) ? 1 : agreed + 1;
  }
}

// The end of the gap that search() found.
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
  begin_search(blocks_[block], cursor);
  search(blocks_[block], cursor);
  return cursor;
}

uint64_t Placement::fit_below(uint32_t block, uint64_t ceiling) {
  const Block& what = blocks_[block];
  if (what.bytes >= small_below_) return first_fit(block);
  uint64_t& last = buckets_[bucket_of(what.first)].small;
  const uint64_t near = fit_from(block, last);
  last = near + what.bytes <= ceiling ? near : first_fit(block);
  return last;
}

uint64_t Placement::best_fit(uint32_t block) {
  uint64_t best = 0, best_gap = UINT64_MAX;
  begin_search(blocks_[block], 0);
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

// Moves the sweep up to the lowest offset at which no block of the bucket with a price of the limit
// or more is in the way. Cheaper blocks are taken; a block in several buckets counts only in the
// first. If the taken blocks together cost the limit, the sweep moves on until some of them have
// ended. True if it moved.
bool Placement::advance(uint32_t number, const Block& block, Sweep& sweep) {
  Bucket& bucket = buckets_[number];
  const Entry* const entries = entries_.begin() + bucket.begin;
  const uint32_t first = bucket_of(block.first);
  const float limit = sweep.limit;
  uint64_t cursor = sweep.offset;
  uint32_t i = bucket.next;
  for (; i < bucket.size && entries[i].offset < cursor + block.bytes; ++i) {
    // Branch-free where a branch would be unpredictable.
    const Entry& entry = entries[i];
    const bool overlaps = (entry.first <= block.last) & (block.first <= entry.last);
    const bool is_dear = entry.price >= limit;
    cursor = std::max(cursor, entry.end & -uint64_t(overlaps & is_dear));
    if (!(overlaps & !is_dear & (entry.end > cursor))) [[likely]]
      continue;
    if (std::max(bucket_of(entry.first), first) != number) continue;
    sweep.price += entry.price;
    taken_[sweep.taken++] = {entry.end, entry.price, entry.block};
    std::push_heap(taken_.begin(), taken_.begin() + sweep.taken, kEndsLater);
    while (sweep.taken != 0 && sweep.price >= limit) {
      cursor = std::max(cursor, taken_[0].end);
      give_back_lowest(sweep);
    }
  }
  steps_ += i - bucket.next + 1;
  bucket.next = i;
  return std::exchange(sweep.offset, cursor) != cursor;
}

// Gives back the taken block that ends first.
void Placement::give_back_lowest(Sweep& sweep) {
  sweep.price -= taken_[0].price;
  std::pop_heap(taken_.begin(), taken_.begin() + sweep.taken--, kEndsLater);
  if (sweep.taken == 0) sweep.price = 0;  // without the error of all sums
}

// Moves up to the next offset on which all buckets agree.
void Placement::sweep_up(const Block& block, Sweep& sweep) {
  const uint32_t first = bucket_of(block.first), last = bucket_of(block.last);
  const uint32_t count = last - first + 1;
  uint32_t agreed = 0;
  for (uint32_t i = first; agreed < count; i = i == last ? first : i + 1) {
    agreed = advance(i, block, sweep) ? 1 : agreed + 1;
  }
  while (sweep.taken != 0 && taken_[0].end <= sweep.offset) give_back_lowest(sweep);
}

Placement::Place Placement::cheapest_place(uint32_t block, uint64_t ceiling, double limit,
                                           std::span<uint32_t> in_the_way) {
  const Block& what = blocks_[block];
  Place best = {.offset = 0, .price = limit, .in_the_way = 0};
  Sweep sweep;
  for (begin_search(what, 0);; sweep.offset = taken_[0].end) {
    sweep.limit = static_cast<float>(best.price);
    sweep_up(what, sweep);
    if (sweep.offset + what.bytes > ceiling) return best;
    if (sweep.price < best.price) {
      best = {sweep.offset, sweep.price, sweep.taken};
      for (size_t i = 0; i < sweep.taken; ++i) in_the_way[i] = taken_[i].block;
    }
    if (sweep.taken == 0) return best;
  }
}

void Placement::insert(uint32_t block, uint64_t offset, float price) {
  const Block& what = blocks_[block];
  const Entry entry = {offset, offset + what.bytes, what.first, what.last, block, price};
  offsets_[block] = offset;
  tallest_ = std::max(tallest_, what.bytes);
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
