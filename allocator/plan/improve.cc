// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/improve.h"

#include <algorithm>

#include "allocator/plan/greedy.h"

namespace cistern::alloc::plan {

bool Improve::make(const Problem& problem, Placement& placement, uint64_t seed) {
  blocks_ = problem.blocks();
  placement_ = &placement;
  state_ = seed;
  return high_.make(blocks_.size()) && is_high_.make(blocks_.size());
}

// SplitMix64: the same everywhere.
uint64_t Improve::random() {
  state_ += 0x9E3779B97F4A7C15;
  uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

uint64_t Improve::excess(uint32_t block, uint64_t target) const {
  const uint64_t end = placement_->end(block);
  return end > target ? end - target : 0;
}

uint64_t Improve::run(uint64_t target, Budget& budget) {
  highs_ = 0;
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    is_high_[i] = static_cast<char>(excess(i, target) != 0);
    if (is_high_[i] != 0) high_[highs_++] = i;
  }
  uint64_t height = height_of(blocks_, placement_->offsets());
  while (budget.spend(highs_ + 1)) {
    const uint32_t block = pick_high(target, height);
    if (highs_ == 0) break;
    take_out(block, height);
    if (!place_again(target, height)) put_back();
    note_high(target);
    budget.spend(placement_->take_steps());
  }
  return height_of(blocks_, placement_->offsets());
}

// Drops from high_ what is no longer too high. Half of the time the highest, or any of them.
uint32_t Improve::pick_high(uint64_t target, uint64_t& height) {
  height = target;
  uint32_t highest = 0;
  size_t kept = 0;
  for (size_t i = 0; i < highs_; ++i) {
    const uint32_t block = high_[i];
    is_high_[block] = static_cast<char>(excess(block, target) != 0);
    if (is_high_[block] == 0) continue;
    high_[kept++] = block;
    if (placement_->end(block) > height) {
      height = placement_->end(block);
      highest = block;
    }
  }
  highs_ = kept;
  if (highs_ == 0 || random() % 2 == 0) return highest;
  return high_[random() % highs_];
}

// The block, and what has bytes at a random place for it.
void Improve::take_out(uint32_t block, uint64_t height) {
  uint32_t others[kMostMoved - 1];
  const uint64_t bytes = blocks_[block].bytes;
  goal_ = height > bytes ? random() % (height - bytes) : 0;
  size_t found = placement_->in_the_way(block, goal_, goal_ + bytes, others);
  if (found == kMostMoved - 1) found = 0;  // too many: the block alone
  std::sort(others, others + found);
  found = static_cast<size_t>(std::unique(others, others + found) - others);
  moves_ = 0;
  move(block);
  for (size_t i = 0; i < found; ++i) move(others[i]);
}

void Improve::move(uint32_t block) {
  // About by size, within a factor of 1.5.
  const uint64_t bytes = blocks_[block].bytes, key = bytes + random() % (bytes / 2 + 1);
  moved_[moves_++] = {.key = key, .offset = placement_->offset(block), .block = block};
  placement_->remove(block);
}

// False if the moved blocks are worse off than before; then none of them is placed.
bool Improve::place_again(uint64_t target, uint64_t height) {
  std::sort(moved_ + 1, moved_ + moves_, [](const Moved& a, const Moved& b) {
    return a.key != b.key ? a.key > b.key : a.block < b.block;
  });
  uint64_t before = 0, after = 0;
  for (uint32_t i = 0; i < moves_; ++i) {
    const uint64_t end = moved_[i].offset + blocks_[moved_[i].block].bytes;
    before += end - std::min(end, target);
  }
  for (uint32_t i = 0; i < moves_; ++i) {
    const uint32_t block = moved_[i].block;
    placement_->insert(block, place_for(i));
    after += excess(block, target);
    if (after > before || placement_->end(block) > height) {
      for (uint32_t placed = 0; placed <= i; ++placed) placement_->remove(moved_[placed].block);
      return false;
    }
  }
  return true;
}

uint64_t Improve::place_for(uint32_t move) {
  const uint32_t block = moved_[move].block;
  if (move == 0) return placement_->fit_from(block, goal_);
  return random() % 2 == 0 ? placement_->first_fit(block) : placement_->best_fit(block);
}

void Improve::put_back() {
  for (uint32_t i = 0; i < moves_; ++i) placement_->insert(moved_[i].block, moved_[i].offset);
}

void Improve::note_high(uint64_t target) {
  for (uint32_t i = 0; i < moves_; ++i) {
    const uint32_t block = moved_[i].block;
    if (is_high_[block] != 0 || excess(block, target) == 0) continue;
    is_high_[block] = 1;
    high_[highs_++] = block;
  }
}

}  // namespace cistern::alloc::plan
