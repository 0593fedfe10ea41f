// SPDX-License-Identifier: Apache-2.0
// The events of a recording, in as few bytes as the recording needs for them, within a small
// factor: whoever makes one up can have an event for two bytes, which as an Event are 72. What
// stands here takes at most 11 times the bytes of the file, and grows without being copied. What
// else is kept of a recording goes by numbers of 32 bits, which no recording exceeds that
// read_recording() takes. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "allocator/record/encoding.h"
#include "allocator/record/event.h"

namespace cistern::alloc::tool {

class Events {
 public:
  Events() = default;
  Events(std::initializer_list<Event> events);

  // With what holds for it as of the last set_state().
  void add(EventType type, Memory memory, uint64_t time_ns, const uint64_t* values);
  // What holds for the events that are added from now on, by State.
  void set_state(const uint64_t (&state)[kStates]);

  size_t size() const { return events_.size(); }
  bool empty() const { return events_.empty(); }
  Event operator[](size_t i) const;
  Event back() const { return (*this)[size() - 1]; }
  uint64_t time_ns(size_t i) const { return events_[i].time_ns; }
  EventType type(size_t i) const { return static_cast<EventType>(tags_[i] & 0xF); }
  uint32_t thread(size_t i) const { return states_[events_[i].state].thread; }

  // Puts them into another order, in which each has its place: `order[i]` becomes the i-th. The
  // numbers in `order` are lost.
  void arrange(std::vector<uint32_t>& order);
  // Instead of the phases that the recording tells: phase n begins with the n-th of these events,
  // which are in rising order.
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
  // By what holds for the events: there is one for each change.
  struct StateRow {
    uint64_t context, stream;
    uint32_t thread, device, site, range, phase;
  };
  struct Compact {
    uint64_t time_ns;
    uint32_t state, values;  // the first one of each
  };

  std::deque<StateRow> states_{StateRow{}};
  std::deque<Compact> events_;
  std::deque<uint8_t> tags_;     // type and memory, as in the file
  std::deque<uint64_t> values_;  // address, bytes, code: those that the type has
  std::vector<uint32_t> phase_begins_;
};

// Sorts events of many threads by time; before that each thread's are in the order in which it
// recorded them, and those of one time stay so. Apart from that, what ends something comes before
// what begins something.
void sort_by_time(Events& events);

}  // namespace cistern::alloc::tool
