// SPDX-License-Identifier: Apache-2.0
// The live blocks and their sizes. Automatic phases need them for memory whose size no pool knows
// when it is freed. Zeroed memory is an empty object; not thread-safe. Memory comes from the
// operating system with the first block and is kept. A block for which there is no room is not
// recorded.
#pragma once

#include <cstdint>

#include "allocator/base/records.h"
#include "allocator/record/event.h"

namespace cistern::alloc {

class LiveBlocks {
 public:
  struct Block {
    Block* next;
    uint64_t key;  // the address
    uint64_t bytes : 60;
    uint64_t memory : 4;
    uint64_t context;  // its handle
  };
  static_assert(sizeof(Block) == 32);

  // Adds a block. If an earlier block is still recorded at the address, its free was not seen:
  // replaces it, and returns its bytes. Otherwise 0.
  uint64_t allocated(Memory memory, uint64_t address, uint64_t bytes, uint64_t context) {
    Block* block = find(memory, address);
    if (block == nullptr) {
      block = set_up() ? records_.take() : nullptr;
      if (block == nullptr) return 0;
      *block = {.next = nullptr, .key = address, .bytes = 0, .memory = 0, .context = 0};
      table_->insert(block);
    }
    const uint64_t before = block->bytes;
    block->bytes = bytes & kMostBytes;
    block->memory = static_cast<uint64_t>(memory) & 0xF;
    block->context = context;
    return before;
  }

  // Removes a block and copies it to *out, except `next`. False if none is recorded there.
  bool freed(Memory memory, uint64_t address, Block* out) {
    Block* block = find(memory, address);
    if (block == nullptr) return false;
    table_->remove(block);
    *out = *block;
    records_.give_back(block);
    return true;
  }

  // Removes the blocks that end with this context. Returns their bytes. Looks at all blocks.
  uint64_t context_ended(uint64_t context) {
    uint64_t bytes = 0;
    if (table_ == nullptr) return bytes;
    Block* gone = table_->remove_all([=](const Block& block) {
      return block.context == context && ends_with_context(static_cast<Memory>(block.memory));
    });
    while (gone != nullptr) {
      Block* next = gone->next;
      bytes += gone->bytes;
      records_.give_back(gone);
      gone = next;
    }
    return bytes;
  }

 private:
  using Table = KeyedTable<Block, 20>;
  static constexpr uint64_t kMostBytes = (uint64_t{1} << 60) - 1;

  bool set_up() {
    if (table_ == nullptr) table_ = static_cast<Table*>(os::map_huge(sizeof(Table)));
    return table_ != nullptr;
  }

  Block* find(Memory memory, uint64_t address) const {
    if (table_ == nullptr) return nullptr;
    const KeySpace space = key_space_of(memory);
    return table_->find(address, [=](const Block& block) {
      return key_space_of(static_cast<Memory>(block.memory)) == space;
    });
  }

  Table* table_ = nullptr;
  Records<Block, os::kHugePage, os::kHugePage> records_;
};

}  // namespace cistern::alloc
