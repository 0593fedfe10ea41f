// SPDX-License-Identifier: Apache-2.0
#include <cinttypes>
#include <cstdio>
#include <ctime>

#include "allocator/record/tool/analysis.h"
#include "allocator/record/tool/text.h"

namespace cistern::alloc::tool {
namespace {

constexpr size_t kFramesShown = 8;

constexpr Sort kAllSorts[] = {Sort::peak, Sort::end, Sort::temporary, Sort::calls, Sort::bytes};

const char* title_of(Sort sort) {
  switch (sort) {
    case Sort::peak:
      return "live at the peak";
    case Sort::end:
      return "live at the end";
    case Sort::temporary:
      return "temporary: freed before the thread allocated again";
    case Sort::calls:
      return "most calls";
    case Sort::bytes:
      return "most bytes";
  }
  return "";
}

bool counts_bytes(Sort sort) { return sort != Sort::temporary && sort != Sort::calls; }

std::string shown(const Tally& tally, Sort sort) {
  const uint64_t value = figure_of(tally, sort);
  return counts_bytes(sort) ? mib(value) : std::to_string(value);
}

// The callers of what the row names.
void show_stack(const Recording& recording, uint32_t site) {
  const std::vector<Frame>& frames = recording.sites[site];
  for (size_t i = 0; i < frames.size() && i < kFramesShown; ++i) {
    std::printf("                  %s\n", frame_text(recording, frames[i]).c_str());
  }
  if (frames.size() > kFramesShown) {
    std::printf("                  and %zu more\n", frames.size() - kFramesShown);
  }
}

void show_list(const Selection& selection, const Ranking& ranking, uint32_t place, By by,
               Sort sort) {
  const std::vector<const Row*> rows = ranking.rows(place, sort);
  if (rows.empty()) return;
  std::printf("\n%s, by %s: %s\n", place_text(place).c_str(), kBys[static_cast<int>(by)],
              title_of(sort));
  for (size_t i = 0; i < rows.size() && i < selection.options.top; ++i) {
    const auto number = static_cast<uint32_t>(rows[i]->number);
    std::printf("%14s  %s\n", shown(rows[i]->tally, sort).c_str(),
                label_of(selection.recording, by, number).c_str());
    if (by == By::site) show_stack(selection.recording, number);
  }
  if (rows.size() > selection.options.top) {
    std::printf("%14s  and %zu more: --top %zu\n", "", rows.size() - selection.options.top,
                rows.size());
  }
}

void show_lists_by(const Selection& selection, By by) {
  const Ranking ranking(selection, [by](const Event& event) { return number_of(event, by); });
  for (uint32_t place = 0; place < kPlaces; ++place) {
    for (const Sort sort : kAllSorts) {
      if (selection.options.sort.value_or(sort) != sort) continue;
      show_list(selection, ranking, place, by, sort);
    }
  }
}

void show_head(const Selection& selection, const Sums& sums) {
  const RecordingHead& head = selection.recording.head;
  const Events& events = selection.recording.events;
  const auto count = [&](EventType type) { return sums.events[static_cast<size_t>(type)]; };
  std::printf("program     %s, process %" PRIu32 "\n", printable(head.program).c_str(),
              head.process);
  std::printf("host        %s\n", printable(head.host).c_str());
  std::printf("began       %s, %.3f s to the last event\n", began_text(head).c_str(),
              events.empty() ? 0 : seconds(events.back().time_ns));
  std::printf("ended       %s\n", end_text(head).c_str());
  std::printf("memory      %s; policy: %s\n",
              (head.flags & kRecordingPooled) != 0 ? "pooled" : "from the driver alone",
              printable(head.policy).c_str());
  std::printf("events      %zu; %" PRIu64 " omitted\n", events.size(), head.lost);
  std::printf(
      "shown       %" PRIu64 " allocations, %" PRIu64 " frees, %" PRIu64 " refused, %" PRIu64
      " chunks obtained, %" PRIu64 " released, %" PRIu64 " contexts ended\n",
      count(EventType::allocated), count(EventType::freed), count(EventType::refused),
      count(EventType::obtained), count(EventType::released), count(EventType::context_ended));
}

void show_kinds(const Sums& sums) {
  std::printf("\n%-26s %11s %11s %7s %14s %14s %14s\n", "memory", "allocations", "frees", "refused",
              "bytes", "peak live", "live at end");
  for (const auto& [kind, of_kind] : sums.kinds) {
    const std::string name = "device " + std::to_string(kind.first) + " " +
                             kMemoryNames[static_cast<size_t>(kind.second)];
    if (of_kind.allocations + of_kind.refused != 0) {
      std::printf("%-26s %11" PRIu64 " %11" PRIu64 " %7" PRIu64 " %14s %14s %14s\n", name.c_str(),
                  of_kind.allocations, of_kind.frees, of_kind.refused, mib(of_kind.bytes).c_str(),
                  mib(of_kind.peak_bytes).c_str(), mib(of_kind.live_bytes).c_str());
    }
    if (of_kind.chunks_obtained != 0) {
      std::printf("%-26s %11" PRIu64 " %11" PRIu64 " %7s %14s %14s %14s\n",
                  (name + " chunks").c_str(), of_kind.chunks_obtained, of_kind.chunks_released, "",
                  "", mib(of_kind.most_reserved).c_str(), mib(of_kind.reserved).c_str());
    }
  }
}

void show_phases(const Selection& selection, const Sums& sums) {
  if (sums.phases.empty()) return;
  std::printf("\n%-26s %11s %11s %22s  most live\n", "phase", "runs", "allocations", "bytes");
  for (const auto& [number, phase] : sums.phases) {
    std::string peaks;
    for (const auto& [place, bytes] : phase.peak) {
      peaks += (peaks.empty() ? "" : ", ") + place_text(place) + " " + mib(bytes);
    }
    std::printf("%-26s %11" PRIu64 " %11" PRIu64 " %22s  %s\n",
                label_of(selection.recording, By::phase, number).c_str(), phase.runs,
                phase.allocations, mib(phase.bytes).c_str(), peaks.c_str());
  }
}

}  // namespace

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string end_text(const RecordingHead& head) {
  if ((head.flags & kRecordingEnded) != 0) return "in an orderly way";
  if ((head.flags & kRecordingCutShort) != 0) return "early: the file could not be written further";
  return "not yet, or it was killed: up to a second of events of each thread is missing";
}

std::string began_text(const RecordingHead& head) {
  const auto time = static_cast<std::time_t>(head.began_unix_ns / 1'000'000'000);
  std::tm parts{};
  char text[64];
  if (::gmtime_r(&time, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) {
    return kUnknown;
  }
  return text;
}

uint32_t number_of(const Event& event, By by) {
  switch (by) {
    case By::site:
      return event.site;
    case By::range:
      return event.range;
    case By::phase:
      return event.phase;
    case By::thread:
      return event.thread;
  }
  return 0;
}

std::string label_of(const Recording& recording, By by, uint32_t number) {
  if (by == By::thread) return "thread " + std::to_string(number);
  if (number == 0) return kUnknown;
  if (by == By::site) return site_text(recording, number);
  return printable(by == By::range ? recording.range(number) : recording.phase(number));
}

void show_lists(const Selection& selection) { show_lists_by(selection, *selection.options.by); }

void show_summary(const Selection& selection) {
  const Sums sums = sums_of(selection);
  show_head(selection, sums);
  show_kinds(sums);
  show_phases(selection, sums);
  if (selection.recording.sites.size() > 1) show_lists_by(selection, By::site);
  if (selection.recording.ranges.size() > 1) show_lists_by(selection, By::range);
}

}  // namespace cistern::alloc::tool
