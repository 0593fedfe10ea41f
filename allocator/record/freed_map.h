// SPDX-License-Identifier: Apache-2.0
// Freed memory that was not handed out again yet, by address. It shows whose memory a new block
// gets. A treap by address, so it finds all earlier blocks even if their memory was merged or cut
// since. Not thread-safe.
#pragma once

#include <cstdint>

#include "allocator/base/records.h"

namespace cistern::alloc {

// A freed block, or what is left of it.
struct FreedBlock {
  FreedBlock* left;
  FreedBlock* right;
  uint64_t address, bytes;  // what is left of it
  uint64_t requested;       // requested size of the whole block
  uint32_t site, range;     // of its allocation
};

class FreedMap {
 public:
  // Without memory for a record the block is not remembered.
  void add(uint64_t address, uint64_t bytes, uint32_t site, uint32_t range = 0) {
    cut(address, bytes, [](const FreedBlock&, uint64_t) {});
    FreedBlock* block = records_.take();
    if (block == nullptr) return;
    *block = {nullptr, nullptr, address, bytes, bytes, site, range};
    FreedBlock *below, *above;
    split(root_, address, &below, &above);
    root_ = merge(merge(below, block), above);
  }

  // Forgets the memory in the range. Calls visit(block, bytes) for each block that has `bytes` in
  // it.
  template <typename Visitor>
  void cut(uint64_t address, uint64_t bytes, Visitor visit) {
    const uint64_t end = address + bytes;
    FreedBlock *below, *inside, *above;
    split(root_, address, &below, &inside);
    split(inside, end, &inside, &above);
    FreedBlock* rest = nullptr;  // of a block that reaches beyond the end
    if (FreedBlock* last = rightmost(below); last != nullptr && end_of(last) > address) {
      if (end_of(last) > end) rest = remainder(*last, end);
      visit(*last, (end_of(last) < end ? end_of(last) : end) - address);
      last->bytes = address - last->address;
    }
    if (FreedBlock* last = rightmost(inside); last != nullptr && end_of(last) > end) {
      rest = remainder(*last, end);
      last->bytes = end - last->address;
    }
    give_back_all(inside, visit);
    root_ = merge(merge(below, rest), above);
  }

 private:
  static uint64_t end_of(const FreedBlock* block) { return block->address + block->bytes; }
  static uint64_t priority(const FreedBlock* block) { return block->address * 0x9E3779B97F4A7C15u; }

  static FreedBlock* rightmost(FreedBlock* tree) {
    while (tree != nullptr && tree->right != nullptr) tree = tree->right;
    return tree;
  }

  // Splits into blocks that begin below `address`, and the others.
  static void split(FreedBlock* tree, uint64_t address, FreedBlock** below, FreedBlock** above) {
    while (tree != nullptr) {
      if (tree->address < address) {
        *below = tree;
        below = &tree->right;
        tree = tree->right;
      } else {
        *above = tree;
        above = &tree->left;
        tree = tree->left;
      }
    }
    *below = *above = nullptr;
  }

  // All of `low` lie below those of `high`.
  static FreedBlock* merge(FreedBlock* low, FreedBlock* high) {
    FreedBlock* root = nullptr;
    FreedBlock** link = &root;
    while (low != nullptr && high != nullptr) {
      if (priority(low) > priority(high)) {
        *link = low;
        link = &low->right;
        low = low->right;
      } else {
        *link = high;
        link = &high->left;
        high = high->left;
      }
    }
    *link = low != nullptr ? low : high;
    return root;
  }

  FreedBlock* remainder(const FreedBlock& block, uint64_t from) {
    FreedBlock* rest = records_.take();
    if (rest != nullptr) {
      *rest = {nullptr,         nullptr,    from,       end_of(&block) - from,
               block.requested, block.site, block.range};
    }
    return rest;
  }

  template <typename Visitor>
  void give_back_all(FreedBlock* tree, Visitor visit) {
    if (tree == nullptr) return;
    FreedBlock* left = tree->left;
    FreedBlock* right = tree->right;
    visit(*tree, tree->bytes);
    records_.give_back(tree);
    give_back_all(left, visit);
    give_back_all(right, visit);
  }

  FreedBlock* root_ = nullptr;
  Records<FreedBlock, size_t{64} << 10> records_;
};

}  // namespace cistern::alloc
