// SPDX-License-Identifier: Apache-2.0
// What `cistern trace` is asked for, the data behind its views, and the views: the selected blocks,
// and sums of them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocator/record/event.h"
#include "allocator/record/tallies.h"
#include "allocator/record/tool/recording.h"

namespace cistern::alloc::tool {

// --- The options

enum class View : uint8_t { summary, csv, events, folded, json, json_events };
enum class By : uint8_t { site, range, phase, thread };
using Sort = TallyOrder;
// The last view has two options: --events --json.
inline constexpr const char* kViews[] = {"summary", "csv", "events", "folded", "json"};
inline constexpr const char* kBys[] = {"site", "range", "phase", "thread"};
inline constexpr const char* kSorts[] = {"peak", "end", "temporary", "calls", "bytes"};

struct Options {
  std::string file;
  std::string svg;  // where the picture goes, if anywhere
  View view = View::summary;
  std::optional<By> by;
  std::optional<Sort> sort;
  uint64_t top = 10;

  // Select blocks: their allocation must match everything that is set.
  std::optional<uint64_t> device, thread;
  std::optional<Memory> memory;
  std::optional<std::string> site, range, phase;  // globs
  uint64_t min_bytes = 0, max_bytes = UINT64_MAX;
  uint64_t from_ns = 0, to_ns = UINT64_MAX;  // blocks freed later count as live at the end
};

// False after one line in `problem`.
bool read_options(int argc, char** argv, Options& out, std::string& problem);

// --- The data

// A recording, and the part of it that the options select.
class Selection {
 public:
  Selection(const Recording& recording, const Options& options);

  const Recording& recording;
  const Options& options;
  const Lives lives;

  bool has(size_t block) const { return selected_[block]; }
  // Whether the event lies before Options::to_ns. Otherwise the end of a block does not count.
  bool in_time(size_t event) const { return recording.events.time_ns(event) <= options.to_ns; }
  // Events of a block are selected with the block, other events by their own fields.
  bool has_event(size_t event) const;

 private:
  bool matches(const Event& event) const;

  std::vector<bool> sites_, ranges_, phases_;  // by number: whether the glob matches
  std::vector<bool> selected_;
};

// Sums for one kind of memory on one device. Devices from kLastDevice on count as one.
inline constexpr uint32_t kLastDevice = 4095;
struct KindSums {
  uint64_t allocations = 0, frees = 0, bytes = 0, live_bytes = 0, live_blocks = 0, peak_bytes = 0;
  uint64_t refused = 0;
  uint64_t chunks_obtained = 0, chunks_released = 0, reserved = 0, most_reserved = 0;
};

struct PhaseSums {
  uint64_t runs = 0, allocations = 0, bytes = 0;
  std::map<uint32_t, uint64_t> peak;  // most live bytes during it, by place, if any
};

struct Sums {
  std::map<std::pair<uint32_t, Memory>, KindSums> kinds;
  std::map<uint32_t, PhaseSums> phases;  // by number
  std::array<uint64_t, kLastEventType + 1> events{};
};

Sums sums_of(const Selection& selection);

// Sums of the allocations in a place that have the same number.
struct Row {
  uint64_t number;
  uint32_t place;
  Tally tally;
};

// Sums by any number that an event can be given, for example its site, range or thread. The same
// sums as in allocator/record/tallies.h. Since the whole recording is known, no block needs a
// record of its own.
class Ranking {
 public:
  template <typename NumberOf>
  Ranking(const Selection& selection, NumberOf number_of);

  // In falling order; rows with 0 are left out.
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
  std::array<uint32_t, kPlaces> peak_{};  // the event of the peak
  std::vector<bool> temporary_;           // by block
  std::deque<Row> rows_;
  std::array<IndexTable, kPlaces> row_of_;
};

// `number_of(event)`: the number to sum an allocation under.
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

// --- The views

// What `cistern trace` prints, one function a view; TRACE.md describes them.
void show_summary(const Selection& selection);
void show_lists(const Selection& selection);  // --by
void show_csv(const Selection& selection);
void show_events(const Selection& selection);
void show_folded(const Selection& selection);
void show_json(const Selection& selection);
void show_json_events(const Selection& selection);

// The picture for --svg. It is not printed.
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
