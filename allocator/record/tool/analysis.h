// SPDX-License-Identifier: Apache-2.0
// What the views show: which blocks were asked for, and sums of them.
#pragma once

#include <array>
#include <deque>
#include <map>
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
  bool in_time(size_t event) const { return recording.events.time_ns(event) <= options.to_ns; }
  // Events of blocks are selected with them, others by what is told of them.
  bool has_event(size_t event) const;

 private:
  bool matches(const Event& event) const;

  std::vector<bool> sites_, ranges_, phases_;  // by number: whether the glob matches
  std::vector<bool> selected_;
};

// Of one kind of memory on one device; devices from kLastDevice on are one.
inline constexpr uint32_t kLastDevice = 4095;
struct KindSums {
  uint64_t allocations = 0, frees = 0, bytes = 0, live_bytes = 0, live_blocks = 0, peak_bytes = 0;
  uint64_t refused = 0;
  uint64_t chunks_obtained = 0, chunks_released = 0, reserved = 0, most_reserved = 0;
};

struct PhaseSums {
  uint64_t runs = 0, allocations = 0, bytes = 0;
  std::map<uint32_t, uint64_t> peak;  // most live during it, by place; some may be missing
};

struct Sums {
  std::map<std::pair<uint32_t, Memory>, KindSums> kinds;
  std::map<uint32_t, PhaseSums> phases;  // by number
  std::array<uint64_t, kLastEventType + 1> events{};
};

Sums sums_of(const Selection& selection);

// Sums of what was allocated in a place under one number.
struct Row {
  uint64_t number;
  uint32_t place;
  Tally tally;
};

// Sums by anything that an event is given a number for: its site, its range, its thread. As those
// of allocator/record/tallies.h, but known from end to end, a block needs no record of its own.
class Ranking {
 public:
  template <typename NumberOf>
  Ranking(const Selection& selection, NumberOf number_of);

  // In falling order; those with 0 are left out.
  std::vector<const Row*> rows(uint32_t place, Sort sort) const;
  // visit(row), in the order of the first allocations.
  template <typename Visitor>
  void for_each(Visitor visit) const {
    for (const Row& row : rows_) visit(row);
  }

 private:
  void see_steps();
  Tally& tally_of(uint32_t place, uint64_t number);
  void count(uint32_t block, const Event& event, uint64_t number);

  const Selection& selection_;
  std::array<uint32_t, kPlaces> peak_{};  // the event with which most was live
  std::vector<bool> temporary_;           // blocks
  std::deque<Row> rows_;
  std::array<IndexTable, kPlaces> row_of_;
};

// `number_of(event)`: of an allocation.
template <typename NumberOf>
Ranking::Ranking(const Selection& selection, NumberOf number_of) : selection_(selection) {
  see_steps();
  for (uint32_t block = 0; block < selection.lives.blocks.size(); ++block) {
    const uint32_t allocated = selection.lives.blocks[block].allocated;
    if (!selection.has(block) || !selection.in_time(allocated)) continue;
    const Event event = selection.recording.events[allocated];
    count(block, event, number_of(event));
  }
}

// "device 0", "pinned"
std::string place_text(uint32_t place);

// What `cistern trace` prints, one function a view; TRACE.md describes them.
void show_summary(const Selection& selection);
void show_lists(const Selection& selection);  // --by
void show_csv(const Selection& selection);
void show_events(const Selection& selection);
void show_folded(const Selection& selection);
void show_json(const Selection& selection);

// Not printed, but written with --svg.
std::string live_picture(const Selection& selection);

// --- Shared by views

// "phase forward", "thread 17", ...: what a number of this kind stands for.
std::string label_of(const Recording& recording, By by, uint32_t number);
// The number of an event by which `by` groups.
uint32_t number_of(const Event& event, By by);
std::string end_text(const RecordingHead& head);
std::string began_text(const RecordingHead& head);
double seconds(uint64_t ns);

}  // namespace cistern::alloc::tool
