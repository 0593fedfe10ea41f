// SPDX-License-Identifier: Apache-2.0
// Chunks on their way from one place to another, linked by Chunk::next. A list belongs to one
// thread.
#pragma once

#include "allocator/base/linked_list.h"
#include "allocator/chunk/chunk.h"

namespace cistern::alloc {

using ChunkList = LinkedList<Chunk>;

}  // namespace cistern::alloc
