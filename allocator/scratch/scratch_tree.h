// SPDX-License-Identifier: Apache-2.0
// Scratch blocks of one stream in order of size, equal ones oldest first: finds the smallest that
// is large enough, and takes any block out, in logarithmic time. A treap: a search tree by key that
// is a heap by a hash of the address, so it stays balanced without counts. The links are the
// block's own. Not thread-safe: the lock of the ScratchCache protects it.
#pragma once

#include <cstdint>

namespace cistern::alloc {

// T has bytes, word (the ticket of its free), left, right and address(), which no other has.
template <typename T>
class ScratchTree {
 public:
  bool empty() const { return root_ == nullptr; }
  T* any() const { return root_; }

  void insert(T* node) {
    T** link = &root_;
    while (*link != nullptr && !above(node, *link)) {
      link = before(node, *link) ? &(*link)->left : &(*link)->right;
    }
    split(*link, node, &node->left, &node->right);
    *link = node;
  }

  // `node` is in the tree.
  void remove(T* node) {
    T** link = &root_;
    while (*link != node) link = before(node, *link) ? &(*link)->left : &(*link)->right;
    join(link, node->left, node->right);
  }

  // The smallest of at least `bytes`, of several the one freed first; nullptr if there is none.
  T* at_least(uint64_t bytes) const {
    T* found = nullptr;
    for (T* node = root_; node != nullptr;) {
      if (node->bytes >= bytes) {
        found = node;
        node = node->left;
      } else {
        node = node->right;
      }
    }
    return found;
  }

 private:
  static bool before(const T* a, const T* b) {
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a->word != b->word) return a->word < b->word;
    return a->address() < b->address();
  }

  static bool above(const T* a, const T* b) { return rank(a) > rank(b); }
  static uint64_t rank(const T* node) { return node->address() * 0x9E3779B97F4A7C15u; }

  // What comes before `node` goes under *low, the rest under *high.
  static void split(T* tree, const T* node, T** low, T** high) {
    while (tree != nullptr) {
      if (before(tree, node)) {
        *low = tree;
        low = &tree->right;
        tree = tree->right;
      } else {
        *high = tree;
        high = &tree->left;
        tree = tree->left;
      }
    }
    *low = *high = nullptr;
  }

  // Everything in `low` comes before everything in `high`.
  static void join(T** link, T* low, T* high) {
    while (low != nullptr && high != nullptr) {
      if (above(low, high)) {
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
  }

  T* root_ = nullptr;
};

}  // namespace cistern::alloc
