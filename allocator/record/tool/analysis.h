// SPDX-License-Identifier: Apache-2.0
// What the views show: which blocks were asked for, and sums of them.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/record/tallies.h"
#include "allocator/record/tool/lives.h"
#include "allocator/record/tool/options.h"

namespace cistern::alloc::tool {

// A recording, and what of it was asked for.
class Selection {
 public:
  Selection(const Recording& recording, const Options& options);

  const Recording& recording;
  const Options& options;
  const Lives lives;

  bool has(size_t block) const { return selected_[block]; }
  // Whether the end of a block counts as one.
  bool in_time(const Event& event) const { return event.time_ns <= options.to_ns; }
  // Events of blocks are selected with them, others by what is told of them.
  bool has_event(size_t event) const;

 private:
  bool matches(const Event& event) const;

  std::vector<char> sites_, ranges_, phases_;  // by number: whether the glob matches
  std::vector<char> selected_;
};

// Of one kind of memory on one device.
struct KindSums {
  uint64_t allocations = 0, frees = 0, bytes = 0, live_bytes = 0, live_blocks = 0, peak_bytes = 0;
  uint64_t refused = 0;
  uint64_t chunks_obtained = 0, chunks_released = 0, reserved = 0, most_reserved = 0;
};

struct PhaseSums {
  uint64_t runs = 0, allocations = 0, bytes = 0;
  std::map<uint32_t, uint64_t> peak;  // most live during it, by place
};

struct Sums {
  std::map<std::pair<uint32_t, Memory>, KindSums> kinds;
  std::map<uint32_t, PhaseSums> phases;  // by number
  std::array<uint64_t, kLastEventType + 1> events{};
};

Sums sums_of(const Selection& selection);

// One row of a list: something that allocated in a place.
struct Row {
  uint32_t number;
  Tally tally;
};

// Sums by site and range, or by anything else that an event is given a number for.
class Ranking {
 public:
  template <typename NumberOf>
  Ranking(const Selection& selection, NumberOf number_of);

  const Tally& total(uint32_t place) const { return tallies_->total(place); }
  // In falling order; those with 0 are left out.
  std::vector<Row> rows(uint32_t place, TallyBy by, Sort sort) const;
  // Of all places, by number.
  std::map<uint32_t, uint64_t> values(TallyBy by, Sort sort) const;

 private:
  void add(const Selection& selection, const Step& step, Event event);

  std::unique_ptr<Tallies> tallies_ = std::make_unique<Tallies>();
};

// `number_of(event)` stands in for the site of an allocation.
template <typename NumberOf>
Ranking::Ranking(const Selection& selection, NumberOf number_of) {
  for (const Step& step : selection.lives.steps) {
    if (!selection.has(step.block)) continue;
    Event event = selection.recording.events[step.event];
    if (step.begins) event.site = number_of(event);
    add(selection, step, event);
  }
}

// "device 0", "pinned"
std::string place_text(uint32_t place);

}  // namespace cistern::alloc::tool
