// SPDX-License-Identifier: Apache-2.0
// Chunks on their way from one place to another, linked by Chunk::next. Not thread-safe: a list is
// its thread's own.
#pragma once

#include "allocator/chunk/chunk.h"

namespace cistern::alloc {

struct ChunkList {
  Chunk* head = nullptr;
  void push(Chunk* chunk) {
    chunk->next = head;
    head = chunk;
  }
  Chunk* pop() {
    Chunk* chunk = head;
    if (chunk != nullptr) head = chunk->next;
    return chunk;
  }
};

}  // namespace cistern::alloc
