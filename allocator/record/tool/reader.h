// SPDX-License-Identifier: Apache-2.0
// Reads a recording (FORMAT.md) from the bytes of a file. Nothing in it is trusted: for any bytes,
// the result is either a consistent Recording or one line that says what is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <optional>
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

}  // namespace cistern::alloc::tool
