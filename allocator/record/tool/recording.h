// SPDX-License-Identifier: Apache-2.0
// A recording in memory: what is read from the bytes of a file (FORMAT.md), and what follows from
// it, the blocks from their allocation to their end, and the chunks in the same way. Nothing in the
// file is trusted: for any bytes, the result is either a consistent Recording or one line that says
// what is wrong. How it is read: reader.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "allocator/record/event.h"

namespace cistern::alloc::tool {

// Bytes. Longer files, and recordings that claim to be longer, are not read.
inline constexpr uint64_t kMostRead = uint64_t{8} << 30;

// The events of a recording, in little more memory than the recording itself. A forged recording
// may have an event in two bytes, but an Event takes 72. This class takes at most 11 times the
// bytes of the file, and grows without copying. Other tables refer to events by 32-bit numbers;
// read_recording() refuses recordings that would need more. One thread.
class Events {
 public:
  Events() = default;
  Events(std::initializer_list<Event> events);

  // Adds an event with the state of the last set_state().
  void add(EventType type, Memory memory, uint64_t time_ns, const uint64_t* values);
  // Sets the state of the events that are added from now on, by State.
  void set_state(const uint64_t (&state)[kStates]);

  size_t size() const { return events_.size(); }
  bool empty() const { return events_.empty(); }
  Event operator[](size_t i) const;
  Event back() const { return (*this)[size() - 1]; }
  uint64_t time_ns(size_t i) const { return events_[i].time_ns; }
  EventType type(size_t i) const { return static_cast<EventType>(tags_[i] & 0xF); }
  uint32_t thread(size_t i) const { return states_[events_[i].state].thread; }

  // Sorts the events: event number order[i] becomes the i-th one. `order` is a permutation; its
  // contents are destroyed.
  void arrange(std::vector<uint32_t>& order);
  // Replaces the phases of the recording: phase n begins with the event begins[n - 1]. The numbers
  // rise.
  void set_phases(std::vector<uint32_t> begins) { phase_begins_ = std::move(begins); }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Event;
    using difference_type = std::ptrdiff_t;
    using pointer = const Event*;
    using reference = Event;

    Iterator(const Events* events, size_t at) : events_(events), at_(at) {}
    Event operator*() const { return (*events_)[at_]; }
    Iterator& operator++() { return ++at_, *this; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const Events* events_;
    size_t at_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  // The state of a run of events. There is a row for each change of state.
  struct StateRow {
    uint64_t context, stream;
    uint32_t thread, device, site, range, phase;
  };
  struct Compact {
    uint64_t time_ns;
    uint32_t state, values;  // index in states_; first index in values_
  };

  std::deque<StateRow> states_{StateRow{}};
  std::deque<Compact> events_;
  std::deque<uint8_t> tags_;     // type and memory, as in the file
  std::deque<uint64_t> values_;  // address, bytes, code: those that the type has
  std::vector<uint32_t> phase_begins_;
};

// Sorts events of many threads by time. Events of one thread with the same time stay in the order
// in which the thread recorded them. Otherwise, at the same time, events that end something come
// before events that begin something.
void sort_by_time(Events& events);

struct RangeDefinition {
  uint32_t parent;  // a smaller number, or 0
  uint32_t name;
};

// Each definition is at the index of its number. [0] means "none": no text, no frames.
struct Recording {
  RecordingHead head;
  std::deque<std::string> names;
  std::deque<RangeDefinition> ranges;
  std::deque<uint32_t> phases;  // names
  std::deque<std::vector<Frame>> sites;
  // Sorted as by sort_by_time().
  Events events;

  const std::string& phase(uint32_t number) const { return names[phases[number]]; }
  // "outermost/.../innermost". Of a range deeper than 64 levels or longer than 16 KiB, only the
  // innermost part. "" for 0.
  std::string range(uint32_t number) const;
};

// Empty if the bytes are not a valid recording; `problem` says why.
std::optional<Recording> read_recording(std::span<const uint8_t> file, std::string& problem);

// No number: of an event, of a block or in an IndexTable.
inline constexpr uint32_t kNone = UINT32_MAX;

// A hash table from 64-bit keys of a recording, such as addresses and handles, to 32-bit numbers.
// It stores only the numbers, in 4 to 16 bytes each; the caller provides the key of a number. A
// forged recording could have keys that all collide, so the hash depends on a random secret of each
// run. One thread.
class IndexTable {
 public:
  // The number with this key, or kNone. `key_of(number)`: the key of a number in the table.
  template <typename KeyOf>
  uint32_t find(uint64_t key, KeyOf key_of) const {
    return slots_.empty() ? kNone : slots_[place_of(key, key_of)];
  }

  // Adds a number, in place of the one with the same key if there is one.
  template <typename KeyOf>
  void put(uint32_t number, KeyOf key_of) {
    if (slots_.size() * 3 <= (count_ + 1) * 4) grow(key_of);
    uint32_t& slot = slots_[place_of(key_of(number), key_of)];
    count_ += slot == kNone;
    slot = number;
  }

  // Removes the number with this key. Later entries move up, so no search stops early.
  template <typename KeyOf>
  void remove(uint64_t key, KeyOf key_of) {
    if (find(key, key_of) == kNone) return;
    const size_t mask = slots_.size() - 1;
    size_t hole = place_of(key, key_of);
    for (size_t at = (hole + 1) & mask; slots_[at] != kNone; at = (at + 1) & mask) {
      const size_t wanted = first_place(key_of(slots_[at]));
      if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = kNone;
    --count_;
  }

 private:
  size_t first_place(uint64_t key) const {
    static const uint64_t secret = std::random_device{}() | uint64_t{std::random_device{}()} << 32;
    key ^= secret;
    for (const uint64_t factor : {0xFF51AFD7ED558CCDu, 0xC4CEB9FE1A85EC53u}) {
      key = (key ^ key >> 33) * (factor + (secret << 1));  // odd: no two keys become one
    }
    return (key ^ key >> 33) & (slots_.size() - 1);
  }

  // The slot where the key is, or would be.
  template <typename KeyOf>
  size_t place_of(uint64_t key, KeyOf key_of) const {
    size_t at = first_place(key);
    while (slots_[at] != kNone && key_of(slots_[at]) != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  template <typename KeyOf>
  void grow(KeyOf key_of) {
    const std::vector<uint32_t> old = std::move(slots_);
    slots_.assign(old.empty() ? 16 : 2 * old.size(), kNone);
    for (const uint32_t number : old) {
      if (number != kNone) slots_[place_of(key_of(number), key_of)] = number;
    }
  }

  std::vector<uint32_t> slots_;  // a power of 2, a quarter of them free
  size_t count_ = 0;
};

struct Block {
  uint32_t allocated;      // the event
  uint32_t ended = kNone;  // the event that ended it: its free, the end of its context, or, if its
                           // free is missing, the next allocation at its address
};

// The beginning or the end of a block.
struct Step {
  uint32_t event;
  uint32_t block;
};

struct Lives {
  std::deque<Block> blocks;
  std::deque<Step> steps;               // in the order of the events; ends before beginnings
  std::deque<uint32_t> block_of_event;  // for an allocation or a free; kNone if not known

  bool begins(const Step& step) const { return blocks[step.block].allocated == step.event; }
};

Lives lives_of(const Recording& recording);
// The same for chunks, from obtained to released.
Lives chunks_of(const Recording& recording);

// Finds the automatic phases of a program without markers and chosen ranges
// (allocator/record/phases.h). Its recording has no phases, because the recorder does not know how
// large a freed block was. Gives every event its phase, unless the recording has phases of its own
// or the program never waited for its work.
void find_phases(Recording& recording);

}  // namespace cistern::alloc::tool
