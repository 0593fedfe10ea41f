// SPDX-License-Identifier: Apache-2.0
// How the numbers of a recording are laid out in bytes (FORMAT.md). Writers and readers share this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/record/event.h"

namespace cistern::alloc {

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
