// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/analysis.h"

#include <fnmatch.h>

#include <algorithm>
#include <unordered_map>

#include "allocator/record/tool/text.h"

namespace cistern::alloc::tool {
namespace {

template <typename Matches>
std::vector<char> matching(size_t count, bool asked, Matches matches) {
  std::vector<char> all(count, 1);
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
    selected_.push_back(matches(from.events[block.allocated]) ? 1 : 0);
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
  const size_t block = lives.block_of_event[event];
  if (block == kNone) return matches(recording.events[event]);
  return has(block) && in_time(recording.events[event]);
}

namespace {

class Summing {
 public:
  explicit Summing(const Selection& selection) : selection_(selection) {}

  Sums run() {
    const std::vector<Event>& events = selection_.recording.events;
    auto step = selection_.lives.steps.begin();
    for (size_t i = 0; i < events.size(); ++i) {
      const Event& event = events[i];
      if (!selection_.in_time(event)) break;
      for (; step != selection_.lives.steps.end() && step->event == i; ++step) {
        if (selection_.has(step->block)) step->begins ? begin(event) : end(*step);
      }
      if (!selection_.has_event(i)) continue;
      ++sums_.events[static_cast<size_t>(event.type)];
      see_chunk(event);
      see_phase(event);
    }
    return sums_;
  }

 private:
  KindSums& kind(const Event& event) { return sums_.kinds[{event.device, event.memory}]; }

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

  void end(const Step& step) {
    const Event& event = selection_.recording.events[step.event];
    const Event& block = selection_.recording.events[selection_.lives.blocks[step.block].allocated];
    KindSums& sums = kind(block);
    sums.frees += event.type == EventType::freed;
    --sums.live_blocks;
    sums.live_bytes -= block.bytes;
    live_[place_of(block)] -= block.bytes;
  }

  void see_chunk(const Event& event) {
    if (event.type == EventType::refused) ++kind(event).refused;
    if (event.type == EventType::obtained) {
      KindSums& sums = kind(event);
      ++sums.chunks_obtained;
      sums.reserved += event.bytes;
      sums.most_reserved = std::max(sums.most_reserved, sums.reserved);
      chunks_[event.address] = &event;
    } else if (event.type == EventType::released) {
      const auto chunk = chunks_.find(event.address);
      if (chunk == chunks_.end()) return;
      KindSums& sums = kind(*chunk->second);
      ++sums.chunks_released;
      sums.reserved -= chunk->second->bytes;
      chunks_.erase(chunk);
    } else if (event.type == EventType::context_ended) {
      std::erase_if(chunks_, [&](const auto& chunk) {
        if (chunk.second->context != event.context) return false;
        kind(*chunk.second).reserved -= chunk.second->bytes;
        return true;
      });
    }
  }

  // A thread that goes on in a phase after another one has a new run of it.
  void see_phase(const Event& event) {
    uint32_t& last = phase_of_[event.thread];
    if (event.phase != 0) {
      PhaseSums& sums = sums_.phases[event.phase];
      sums.runs += event.phase != last;
      for (const auto& [place, live] : live_) {
        uint64_t& peak = sums.peak[place];
        peak = std::max(peak, live);
      }
    }
    last = event.phase;
  }

  const Selection& selection_;
  Sums sums_;
  std::map<uint32_t, uint64_t> live_;  // by place
  std::unordered_map<uint64_t, const Event*> chunks_;
  std::unordered_map<uint32_t, uint32_t> phase_of_;  // of each thread, by its last event
};

}  // namespace

Sums sums_of(const Selection& selection) { return Summing(selection).run(); }

void Ranking::add(const Selection& selection, const Step& step, Event event) {
  if (!selection.in_time(event)) return;
  if (step.begins) {
    tallies_->allocated(event);
  } else if (event.type == EventType::freed) {
    tallies_->freed(event, nullptr);
  } else {
    tallies_->gone(selection.recording.events[selection.lives.blocks[step.block].allocated]);
  }
}

std::vector<Row> Ranking::rows(uint32_t place, TallyBy by, Sort sort) const {
  std::vector<Row> rows;
  tallies_->for_each(place, by, [&](uint32_t number, const Tally& tally) {
    if (figure_of(tally, sort) != 0) rows.push_back({number, tally});
  });
  std::ranges::sort(rows, [&](const Row& a, const Row& b) {
    const uint64_t of_a = figure_of(a.tally, sort), of_b = figure_of(b.tally, sort);
    return of_a != of_b ? of_a > of_b : a.number < b.number;
  });
  return rows;
}

std::map<uint32_t, uint64_t> Ranking::values(TallyBy by, Sort sort) const {
  std::map<uint32_t, uint64_t> values;
  for (uint32_t place = 0; place < kPlaces; ++place) {
    tallies_->for_each(place, by, [&](uint32_t number, const Tally& tally) {
      values[number] += figure_of(tally, sort);
    });
  }
  return values;
}

std::string place_text(uint32_t place) {
  return place == kPinnedPlace ? "pinned memory" : "device " + std::to_string(place);
}

}  // namespace cistern::alloc::tool
