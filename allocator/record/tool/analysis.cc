// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/analysis.h"

#include <fnmatch.h>

#include <algorithm>

#include "allocator/record/tool/text.h"

namespace cistern::alloc::tool {
namespace {

template <typename Matches>
std::vector<bool> matching(size_t count, bool asked, Matches matches) {
  std::vector<bool> all(count, true);
  for (size_t i = 0; asked && i < count; ++i) all[i] = matches(static_cast<uint32_t>(i));
  return all;
}

bool fits(const std::string& glob, const std::string& text) {
  return ::fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

// Any frame of the stack.
bool site_fits(const Recording& recording, const std::string& glob, uint32_t site) {
  if (recording.sites[site].empty()) return fits(glob, kUnknown);
  return std::ranges::any_of(recording.sites[site], [&](const Frame& frame) {
    return fits(glob, frame_text(recording, frame)) || fits(glob, recording.names[frame.file]) ||
           (frame.python() && fits(glob, recording.names[frame.function]));
  });
}

template <typename T, typename U>
bool is(const std::optional<T>& asked, U seen) {
  return !asked || *asked == seen;
}

}  // namespace

Selection::Selection(const Recording& from, const Options& asked)
    : recording(from), options(asked), lives(lives_of(from)) {
  sites_ = matching(from.sites.size(), asked.site.has_value(),
                    [&](uint32_t i) { return site_fits(from, *asked.site, i); });
  ranges_ = matching(from.ranges.size(), asked.range.has_value(),
                     [&](uint32_t i) { return fits(*asked.range, from.range(i)); });
  phases_ = matching(from.phases.size(), asked.phase.has_value(),
                     [&](uint32_t i) { return fits(*asked.phase, from.phase(i)); });
  for (const Block& block : lives.blocks) {
    selected_.push_back(matches(from.events[block.allocated]));
  }
}

bool Selection::matches(const Event& event) const {
  return is(options.device, event.device) && is(options.memory, event.memory) &&
         is(options.thread, event.thread) && event.bytes >= options.min_bytes &&
         event.bytes <= options.max_bytes && event.time_ns >= options.from_ns &&
         event.time_ns <= options.to_ns && sites_[event.site] && ranges_[event.range] &&
         phases_[event.phase];
}

bool Selection::has_event(size_t event) const {
  const uint32_t block = lives.block_of_event[event];
  if (block == kNone) return matches(recording.events[event]);
  return has(block) && in_time(event);
}

namespace {

class Summing {
 public:
  explicit Summing(const Selection& selection) : selection_(selection) {}

  Sums run() {
    see_blocks();
    see_chunks();
    return sums_;
  }

 private:
  void see_blocks() {
    const auto& [blocks, steps, block_of_event] = selection_.lives;
    const Events& events = selection_.recording.events;
    auto step = steps.begin();
    for (size_t i = 0; i < events.size() && selection_.in_time(i); ++i) {
      const Event event = events[i];
      for (; step != steps.end() && step->event == i; ++step) {
        if (!selection_.has(step->block)) continue;
        if (selection_.lives.begins(*step)) {
          begin(event);
        } else {
          end(event, events[blocks[step->block].allocated]);
        }
      }
      if (!selection_.has_event(i)) continue;
      ++sums_.events[static_cast<size_t>(event.type)];
      if (event.type == EventType::refused) ++kind(event).refused;
      see_phase(event);
    }
  }

  // The end of a chunk has no device of its own.
  void see_chunks() {
    const Lives chunks = chunks_of(selection_.recording);
    const Events& events = selection_.recording.events;
    for (const Step& step : chunks.steps) {
      const uint32_t obtained = chunks.blocks[step.block].allocated;
      if (!selection_.in_time(step.event)) break;
      if (!selection_.has_event(obtained)) continue;
      const Event chunk = events[obtained];
      KindSums& sums = kind(chunk);
      if (chunks.begins(step)) {
        ++sums.chunks_obtained;
        sums.reserved += chunk.bytes;
        sums.most_reserved = std::max(sums.most_reserved, sums.reserved);
      } else {
        sums.chunks_released += events.type(step.event) == EventType::released;
        sums.reserved -= chunk.bytes;
      }
    }
  }

  KindSums& kind(const Event& event) {
    return sums_.kinds[{std::min(event.device, kLastDevice), event.memory}];
  }

  void begin(const Event& event) {
    KindSums& sums = kind(event);
    ++sums.allocations;
    ++sums.live_blocks;
    sums.bytes += event.bytes;
    sums.live_bytes += event.bytes;
    sums.peak_bytes = std::max(sums.peak_bytes, sums.live_bytes);
    live_[place_of(event)] += event.bytes;
    if (event.phase != 0) {
      ++sums_.phases[event.phase].allocations;
      sums_.phases[event.phase].bytes += event.bytes;
    }
  }

  void end(const Event& event, const Event& block) {
    KindSums& sums = kind(block);
    sums.frees += event.type == EventType::freed;
    --sums.live_blocks;
    sums.live_bytes -= block.bytes;
    live_[place_of(block)] -= block.bytes;
  }

  // A thread that goes on in a phase after another one has a new run of it.
  void see_phase(const Event& event) {
    uint32_t& last = phase_of_[event.thread];
    if (event.phase != 0) {
      PhaseSums& sums = sums_.phases[event.phase];
      sums.runs += event.phase != last;
      for (const auto& [place, live] : live_) {
        auto peak = sums.peak.find(place);
        if (peak == sums.peak.end()) {
          if (peaks_left_ == 0) continue;
          --peaks_left_;
          peak = sums.peak.try_emplace(place, 0).first;
        }
        peak->second = std::max(peak->second, live);
      }
    }
    last = event.phase;
  }

  const Selection& selection_;
  Sums sums_;
  std::map<uint32_t, uint64_t> live_;      // by place
  std::map<uint32_t, uint32_t> phase_of_;  // of each thread, by its last event
  // Whoever makes up phases of a few bytes could have each of them in all places.
  size_t peaks_left_ = 65536 + selection_.recording.events.size() / 8;
};

// As the report counts a block.
uint64_t bytes_of(const Event& block) { return std::min(block.bytes, (uint64_t{1} << 48) - 1); }

}  // namespace

Sums sums_of(const Selection& selection) { return Summing(selection).run(); }

// What has to be known of the whole time: when most was live, and which blocks were temporary.
void Ranking::see_steps() {
  const auto& [blocks, steps, block_of_event] = selection_.lives;
  const Events& events = selection_.recording.events;
  temporary_.resize(blocks.size());
  std::array<uint64_t, kPlaces> live{}, most{};
  std::map<uint32_t, uint32_t> last_of;  // of a thread, the block while that is live
  for (const Step& step : steps) {
    if (!selection_.in_time(step.event)) break;
    if (!selection_.has(step.block)) continue;
    const Event block = events[blocks[step.block].allocated];
    const uint32_t place = place_of(block);
    if (selection_.lives.begins(step)) {
      last_of[block.thread] = step.block;
      live[place] += bytes_of(block);
      if (live[place] <= most[place]) continue;
      most[place] = live[place];
      peak_[place] = step.event;
    } else {
      live[place] -= bytes_of(block);
      const auto last = last_of.find(block.thread);
      if (last == last_of.end() || last->second != step.block) continue;
      temporary_[step.block] = events.type(step.event) == EventType::freed;
      last_of.erase(last);
    }
  }
}

Tally& Ranking::tally_of(uint32_t place, uint64_t number) {
  const auto number_of_row = [this](uint32_t row) { return rows_[row].number; };
  uint32_t row = row_of_[place].find(number, number_of_row);
  if (row == kNone) {
    row = static_cast<uint32_t>(rows_.size());
    rows_.push_back({number, place, {}});
    row_of_[place].put(row, number_of_row);
  }
  return rows_[row].tally;
}

void Ranking::count(uint32_t block, const Event& event, uint64_t number) {
  const Block& life = selection_.lives.blocks[block];
  const uint64_t bytes = bytes_of(event);
  const uint32_t place = place_of(event), peak = peak_[place];
  Tally& tally = tally_of(place, number);
  ++tally.allocations;
  tally.bytes += bytes;
  if (life.allocated <= peak && (life.ended == kNone || life.ended > peak)) {
    tally.peak_bytes += bytes;
  }
  if (life.ended == kNone || !selection_.in_time(life.ended)) {
    ++tally.live_blocks;
    tally.live_bytes += bytes;
    return;
  }
  tally.temporary += temporary_[block];
  const Event end = selection_.recording.events[life.ended];
  tally.within_phase +=
      end.type == EventType::freed && event.phase != 0 && end.phase == event.phase;
}

std::vector<const Row*> Ranking::rows(uint32_t place, Sort sort) const {
  std::vector<const Row*> rows;
  for (const Row& row : rows_) {
    if (row.place == place && figure_of(row.tally, sort) != 0) rows.push_back(&row);
  }
  std::ranges::sort(rows, [&](const Row* a, const Row* b) {
    const uint64_t of_a = figure_of(a->tally, sort), of_b = figure_of(b->tally, sort);
    return of_a != of_b ? of_a > of_b : a->number < b->number;
  });
  return rows;
}

std::string place_text(uint32_t place) {
  return place == kPinnedPlace ? "pinned memory" : "device " + std::to_string(place);
}

}  // namespace cistern::alloc::tool
