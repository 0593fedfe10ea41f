// SPDX-License-Identifier: Apache-2.0
#include <cinttypes>
#include <cstdio>

#include "allocator/record/tool/text.h"
#include "allocator/record/tool/views.h"

namespace cistern::alloc::tool {
namespace {

// Writes objects and arrays with their commas.
class Json {
 public:
  void open(const char* key, char bracket) {
    next(key);
    std::putchar(bracket);
    first_ = true;
  }
  void close(char bracket) {
    std::putchar(bracket);
    first_ = false;
  }
  void number(const char* key, uint64_t value) {
    next(key);
    std::printf("%" PRIu64, value);
  }
  void text(const char* key, const std::string& value) {
    next(key);
    std::fputs(json(value).c_str(), stdout);
  }
  void flag(const char* key, bool value) {
    next(key);
    std::fputs(value ? "true" : "false", stdout);
  }

 private:
  // `key`: nullptr in an array.
  void next(const char* key) {
    if (!first_) std::putchar(',');
    if (key != nullptr) std::printf("\"%s\":", key);
    first_ = false;
  }

  bool first_ = true;
};

void put_head(Json& out, const Selection& selection) {
  const RecordingHead& head = selection.recording.head;
  const Events& events = selection.recording.events;
  out.number("version", head.version);
  out.text("program", head.program);
  out.number("process", head.process);
  out.text("host", head.host);
  out.text("policy", head.policy);
  out.number("began_unix_ns", head.began_unix_ns);
  out.number("last_event_ns", events.empty() ? 0 : events.back().time_ns);
  out.flag("ended", (head.flags & kRecordingEnded) != 0);
  out.flag("cut_short", (head.flags & kRecordingCutShort) != 0);
  out.flag("pooled", (head.flags & kRecordingPooled) != 0);
  out.flag("has_sites", (head.flags & kRecordingHasSites) != 0);
  out.number("events", events.size());
  out.number("lost", head.lost);
}

void put_kinds(Json& out, const Sums& sums) {
  out.open("memory", '[');
  for (const auto& [kind, of_kind] : sums.kinds) {
    out.open(nullptr, '{');
    out.number("device", kind.first);
    out.text("memory", kMemoryNames[static_cast<size_t>(kind.second)]);
    out.number("allocations", of_kind.allocations);
    out.number("frees", of_kind.frees);
    out.number("refused", of_kind.refused);
    out.number("bytes", of_kind.bytes);
    out.number("peak_bytes", of_kind.peak_bytes);
    out.number("live_blocks", of_kind.live_blocks);
    out.number("live_bytes", of_kind.live_bytes);
    out.number("chunks_obtained", of_kind.chunks_obtained);
    out.number("chunks_released", of_kind.chunks_released);
    out.number("most_reserved", of_kind.most_reserved);
    out.close('}');
  }
  out.close(']');
}

void put_phases(Json& out, const Selection& selection, const Sums& sums) {
  out.open("phases", '[');
  for (const auto& [number, phase] : sums.phases) {
    out.open(nullptr, '{');
    out.text("name", selection.recording.phase(number));
    out.number("runs", phase.runs);
    out.number("allocations", phase.allocations);
    out.number("bytes", phase.bytes);
    out.open("peak_bytes", '{');
    for (const auto& [place, bytes] : phase.peak) out.number(place_text(place).c_str(), bytes);
    out.close('}');
    out.close('}');
  }
  out.close(']');
}

void put_frames(Json& out, const Recording& recording, uint32_t site) {
  out.open("frames", '[');
  for (const Frame& frame : recording.sites[site]) {
    out.open(nullptr, '{');
    out.text("text", frame_text(recording, frame));
    out.text("file", recording.names[frame.file]);
    if (frame.python()) {
      out.text("function", recording.names[frame.function]);
      out.number("line", frame.line);
    } else {
      out.number("offset", frame.offset);
    }
    out.close('}');
  }
  out.close(']');
}

void put_rows(Json& out, const Selection& selection, const char* key, By by) {
  const Ranking ranking(selection, [by](const Event& event) { return number_of(event, by); });
  out.open(key, '[');
  for (uint32_t place = 0; place < kPlaces; ++place) {
    for (const Row* row : ranking.rows(place, Sort::calls)) {
      const auto number = static_cast<uint32_t>(row->number);
      out.open(nullptr, '{');
      out.text("place", place_text(place));
      out.number("number", number);
      out.text("name", label_of(selection.recording, by, number));
      out.number("allocations", row->tally.allocations);
      out.number("bytes", row->tally.bytes);
      out.number("live_blocks", row->tally.live_blocks);
      out.number("live_bytes", row->tally.live_bytes);
      out.number("peak_bytes", row->tally.peak_bytes);
      out.number("temporary", row->tally.temporary);
      out.number("within_phase", row->tally.within_phase);
      if (by == By::site) put_frames(out, selection.recording, number);
      out.close('}');
    }
  }
  out.close(']');
}

}  // namespace

void show_json(const Selection& selection) {
  Json out;
  const Sums sums = sums_of(selection);
  out.open(nullptr, '{');
  put_head(out, selection);
  put_kinds(out, sums);
  put_phases(out, selection, sums);
  put_rows(out, selection, "sites", By::site);
  put_rows(out, selection, "ranges", By::range);
  put_rows(out, selection, "threads", By::thread);
  out.close('}');
  std::putchar('\n');
}

}  // namespace cistern::alloc::tool
