// SPDX-License-Identifier: Apache-2.0
// Identifies the block of an event, for code that follows blocks from event to event.
#pragma once

#include <cstdint>

#include "allocator/record/event.h"

namespace cistern::alloc {

// Handles of arrays and the numbers of physical memory are no addresses, and may equal some. A
// free does not always know more of the kind of memory than this.
enum class KeySpace : uint8_t { addresses, arrays, physical };
inline constexpr int kKeySpaces = 3;

constexpr KeySpace key_space_of(Memory memory) {
  if (memory == Memory::array) return KeySpace::arrays;
  return memory == Memory::physical ? KeySpace::physical : KeySpace::addresses;
}

// Physical memory and pools belong to the device.
constexpr bool ends_with_context(Memory memory) {
  return memory != Memory::stream_ordered && memory != Memory::physical;
}

}  // namespace cistern::alloc
