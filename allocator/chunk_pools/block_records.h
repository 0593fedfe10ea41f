// SPDX-License-Identifier: Apache-2.0
// The records of one pool's blocks. They are taken from the process's arena a page at a time, so
// that splitting a block takes no lock that other pools need. Pages stay with the pool, also when
// it is used for another context. Not thread-safe: the lock of the BlockPool protects it.
#pragma once

#include "allocator/base/arena.h"
#include "allocator/chunk_pools/chunk_block.h"

namespace cistern::alloc {

struct BlockPage {
  static constexpr int kBlocks = 73;

  BlockPage* next;
  ChunkBlock blocks[kBlocks];
};
static_assert(sizeof(BlockPage) == 4096);

using BlockPages = Arena<BlockPage>;

class BlockRecords {
 public:
  void init(BlockPages* pages) { pages_ = pages; }

  // nullptr when the system has no memory left.
  ChunkBlock* take() {
    if (unused_ == nullptr) [[unlikely]]
      refill();
    ChunkBlock* block = unused_;
    if (block != nullptr) unused_ = block->next;
    return block;
  }

  void give_back(ChunkBlock* block) {
    block->next = unused_;
    unused_ = block;
  }

  // So that the next `n` calls of take() cannot fail.
  bool reserve(int n) {
    const ChunkBlock* block = unused_;
    while (n > 0 && block != nullptr) {
      block = block->next;
      --n;
    }
    return n == 0 || refill();
  }

  // All records are unused again.
  void reset() {
    unused_ = nullptr;
    for (BlockPage* page = first_; page != nullptr; page = page->next) add(page);
  }

 private:
  [[gnu::noinline]] bool refill() {
    BlockPage* page = pages_->take();
    if (page == nullptr) return false;
    page->next = first_;
    first_ = page;
    add(page);
    return true;
  }

  void add(BlockPage* page) {
    for (int i = BlockPage::kBlocks - 1; i >= 0; --i) give_back(&page->blocks[i]);
  }

  BlockPages* pages_;
  BlockPage* first_ = nullptr;
  ChunkBlock* unused_ = nullptr;
};

}  // namespace cistern::alloc
