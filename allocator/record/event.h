// SPDX-License-Identifier: Apache-2.0
// The events of a recording: something happened to the program's memory. Plain data, the same for
// writers and readers (FORMAT.md).
#pragma once

#include <cstdint>
#include <iterator>

namespace cistern::alloc {

enum class EventType : uint8_t {
  allocated = 1,
  freed = 2,
  refused = 3,        // an allocation that failed
  obtained = 4,       // a chunk came from the driver
  released = 5,       // and went back
  context_ended = 6,  // with all that the program had in it, but for stream-ordered and physical
                      // memory, which are the device's
  synchronised = 7,   // the program waited for work of its own, and there were events before
};
inline constexpr int kLastEventType = 7;

enum class Memory : uint8_t { linear, pitched, managed, pinned, stream_ordered, array, physical };
inline constexpr const char* kMemoryNames[] = {"linear",         "pitched", "managed", "pinned",
                                               "stream-ordered", "array",   "physical"};
inline constexpr int kMemories = std::size(kMemoryNames);

struct Event {
  EventType type{};
  Memory memory{};
  // Since the recording began: of an allocation when it had been answered, of a free when it was
  // asked for. So no block is allocated before the one at its address was freed. Physical memory,
  // which may end with any of several calls, is freed when the last one had been answered.
  uint64_t time_ns = 0;
  uint64_t address = 0;  // arrays: the handle; physical memory: a number of its own
  uint64_t bytes = 0;    // as asked for; 0 in frees
  uint64_t stream = 0;   // of stream-ordered calls
  uint64_t context = 0;  // its handle; of frees and released chunks not known
  uint32_t thread = 0;   // the system's number
  uint32_t device = 0;   // as context
  // Where the call came from: numbers that the recording has definitions for; 0: not known.
  uint32_t site = 0;  // of allocations only
  uint32_t range = 0;
  uint32_t phase = 0;
  uint32_t code = 0;  // of a refused allocation: CUDA's
};

// Identifies the block of an event, for code that follows blocks from event to event.

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

// One level of a call stack, as call sites and recordings keep it. Plain data.
struct Frame {
  // Native: the path of the file whose code it is, "" where no file has it. Python: the source
  // file. A number of Names.
  uint32_t file;
  // Python: the function, a number of Names, and the line. Native: 0.
  uint32_t function;
  uint32_t line;
  // Native: the address of the call as the file's symbol table counts (without the file's load
  // address), or the address itself where no file has it. Python: 0.
  uint64_t offset;

  bool python() const { return function != 0; }
  friend bool operator==(const Frame&, const Frame&) = default;
};

inline constexpr int kMostFrames = 64;  // of one stack; the outermost beyond are left out

}  // namespace cistern::alloc
