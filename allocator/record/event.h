// SPDX-License-Identifier: Apache-2.0
// The events of a recording: something happened to the program's memory; and how they, and the rest
// of a recording, are laid out in bytes (FORMAT.md). Writers and readers share this.
#pragma once

#include <cstddef>
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

// Plain data.
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

// --- The block of an event, for code that follows blocks from event to event

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

// --- Call stacks

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

// --- The bytes of a recording

inline constexpr char kRecordingMagic[8] = {'C', 'I', 'S', 'T', 'R', 'E', 'C', '\n'};
inline constexpr uint32_t kRecordingVersion = 1;

enum RecordingFlags : uint32_t {
  kRecordingEnded = 1,
  kRecordingHasSites = 2,
  kRecordingPooled = 4,
  kRecordingCutShort = 8,
};

struct RecordingHead {
  char magic[8];
  uint32_t version;
  uint32_t head_bytes;
  uint64_t committed;
  uint64_t began_ns;
  uint64_t began_unix_ns;
  uint32_t process;
  uint32_t flags;
  uint64_t lost;
  uint64_t reserved;
  char program[1024];
  char host[256];
  char policy[1024];
  char padding[1728];
};
static_assert(sizeof(RecordingHead) == 4096);

inline constexpr char kBlockMagic[4] = {'C', 'B', 'L', 'K'};
inline constexpr uint32_t kMostBlockBytes = 65536;  // of the contents

enum class BlockKind : uint32_t { events = 1, definitions = 2 };

struct BlockHead {
  char magic[4];
  uint32_t bytes;
  BlockKind kind;
  uint32_t adler32;
};

enum class Defined : uint8_t { name = 1, range = 2, phase = 3, site = 4 };

// State that holds for all following events. The tags begin at kFirstStateTag, in this order.
enum class State : uint8_t { thread, device, context, stream, site, range, phase };
inline constexpr int kStates = 7;
inline constexpr uint8_t kFirstStateTag = 8;

constexpr unsigned bit(State state) { return 1u << static_cast<unsigned>(state); }

// The states that an event of this type records, as bits; a reader sees the others as 0. A free
// records no place, because its block's allocation has it.
constexpr unsigned states_of(EventType type) {
  constexpr unsigned kCaller = bit(State::thread) | bit(State::range) | bit(State::phase);
  constexpr unsigned kPlace = bit(State::device) | bit(State::context);
  switch (type) {
    case EventType::allocated:
    case EventType::refused:
      return kCaller | kPlace | bit(State::stream) | bit(State::site);
    case EventType::freed:
      return kCaller | bit(State::stream);
    case EventType::obtained:
    case EventType::context_ended:
      return kCaller | kPlace;
    case EventType::released:
    case EventType::synchronised:
      return kCaller;
  }
  return 0;
}

constexpr bool has_bytes(EventType type) {
  return type == EventType::allocated || type == EventType::obtained || type == EventType::refused;
}
constexpr bool has_address(EventType type) {
  return type == EventType::allocated || type == EventType::freed || type == EventType::obtained ||
         type == EventType::released;
}

// An event's tag: the type in the lower kTypeBits bits, the kind of memory above them.
inline constexpr uint8_t kTypeBits = 4;

constexpr uint64_t zigzag(int64_t difference) {
  return (static_cast<uint64_t>(difference) << 1) ^ static_cast<uint64_t>(difference >> 63);
}
constexpr int64_t unzigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

inline constexpr size_t kMostVarintBytes = 10;

inline uint8_t* put_varint(uint8_t* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<uint8_t>(value | 0x80);
  *out++ = static_cast<uint8_t>(value);
  return out;
}

uint32_t adler32(const void* data, size_t bytes);

// What the encoding of the next event refers to: the state, and the last time and address. Begins
// anew with each block.
struct EventContext {
  uint64_t state[kStates];
  uint64_t time_ns;
  uint64_t address;
};

// The most bytes that one event takes.
inline constexpr size_t kMostEventBytes =
    kStates * (1 + kMostVarintBytes) + 1 + 3 * kMostVarintBytes;

// Writes the changes of state that the event needs, then the event. Returns the end of what was
// written.
uint8_t* put_event(uint8_t* out, EventContext& context, const Event& event);

}  // namespace cistern::alloc
