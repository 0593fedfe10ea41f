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
  context_ended = 6,  // with all its memory, except stream-ordered and physical memory, which
                      // belong to the device
  synchronised = 7,   // the program waited for its work, and there were events since the last wait
};
inline constexpr int kLastEventType = 7;

enum class Memory : uint8_t { linear, pitched, managed, pinned, stream_ordered, array, physical };
inline constexpr const char* kMemoryNames[] = {"linear",         "pitched", "managed", "pinned",
                                               "stream-ordered", "array",   "physical"};
inline constexpr int kMemories = std::size(kMemoryNames);

struct Event {
  EventType type{};
  Memory memory{};
  // Time since the recording began: for an allocation when the call returned, for a free when it
  // was called. So no block is allocated before the earlier block at its address was freed.
  // Physical memory may end with any of several calls: its time is when the last one returned.
  uint64_t time_ns = 0;
  uint64_t address = 0;  // arrays: the handle; physical memory: a number of its own
  uint64_t bytes = 0;    // as requested; 0 in frees
  uint64_t stream = 0;   // of stream-ordered calls
  uint64_t context = 0;  // its handle; 0 in frees and released chunks
  uint32_t thread = 0;   // the system's number
  uint32_t device = 0;   // 0 in frees and released chunks
  // Where the call came from: numbers that the recording has definitions for; 0: not known.
  uint32_t site = 0;  // of allocations only
  uint32_t range = 0;
  uint32_t phase = 0;
  uint32_t code = 0;  // of a refused allocation: CUDA's
};

// Identifies the block of an event, for code that follows blocks from event to event.

// Handles of arrays and numbers of physical memory are not addresses, but may have the same values.
// A free may know no more about the kind of memory than this.
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
  // A number of Names. Native: the path of the file that has the code, "" if no file has it.
  // Python: the source file.
  uint32_t file;
  // Python: the function, a number of Names, and the line. Native: 0.
  uint32_t function;
  uint32_t line;
  // Native: the address of the call without the file's load address, as in the file's symbol table;
  // the address itself if no file has the code. Python: 0.
  uint64_t offset;

  bool python() const { return function != 0; }
  friend bool operator==(const Frame&, const Frame&) = default;
};

inline constexpr int kMostFrames = 64;  // per stack; frames further out are left out

}  // namespace cistern::alloc
