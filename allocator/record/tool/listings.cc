// SPDX-License-Identifier: Apache-2.0
// Views for other programs: events as lines, folded stacks.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <map>
#include <utility>

#include "allocator/record/tool/analysis.h"
#include "allocator/record/tool/text.h"

namespace cistern::alloc::tool {
namespace {

constexpr const char* kTypeNames[] = {"",         "allocated", "freed",         "refused",
                                      "obtained", "released",  "context-ended", "synchronised"};
static_assert(std::size(kTypeNames) == kLastEventType + 1);

// Part of a folded stack, where ; and the last blank mean something.
std::string folded(std::string text) {
  std::ranges::replace(text, ';', ':');
  return text;
}

std::string stack_of(const Recording& recording, uint32_t site) {
  std::string stack;
  const std::vector<Frame>& frames = recording.sites[site];
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    stack += ';' + folded(frame_text(recording, *frame));
  }
  return frames.empty() ? ";" + std::string(kUnknown) : stack;
}

std::string root_of(const Recording& recording, By by, uint32_t number) {
  std::string root = folded(label_of(recording, by, number));
  if (by == By::range) std::ranges::replace(root, '/', ';');
  return root;
}

}  // namespace

void show_csv(const Selection& selection) {
  std::puts("time_us,op,id,size,stream");
  const Events& events = selection.recording.events;
  std::deque<uint32_t> id_of(selection.lives.blocks.size());
  uint32_t ids = 0;
  for (const Step& step : selection.lives.steps) {
    if (!selection.has(step.block) || !selection.in_time(step.event)) continue;
    const Event event = events[step.event];
    const Event block = events[selection.lives.blocks[step.block].allocated];
    const bool begins = selection.lives.begins(step);
    if (begins) id_of[step.block] = ids++;
    const uint64_t stream = event.type == EventType::freed ? event.stream : block.stream;
    std::printf("%" PRIu64 ",%s,%" PRIu32 ",%" PRIu64 ",%" PRIu64 "\n", event.time_ns / 1000,
                begins ? "alloc" : "free", id_of[step.block], block.bytes, stream);
  }
}

void show_events(const Selection& selection) {
  const Recording& recording = selection.recording;
  for (size_t i = 0; i < recording.events.size(); ++i) {
    if (!selection.has_event(i)) continue;
    const Event event = recording.events[i];
    std::printf("%" PRIu64 ".%09" PRIu64 " %s", event.time_ns / 1'000'000'000,
                event.time_ns % 1'000'000'000, kTypeNames[static_cast<size_t>(event.type)]);
    std::printf(" memory=%s", kMemoryNames[static_cast<size_t>(event.memory)]);
    if (has_address(event.type)) std::printf(" address=0x%" PRIx64, event.address);
    if (has_bytes(event.type)) std::printf(" bytes=%" PRIu64, event.bytes);
    if (event.type == EventType::refused) std::printf(" code=%" PRIu32, event.code);
    const unsigned told = states_of(event.type);
    if ((told & bit(State::device)) != 0) {
      std::printf(" device=%" PRIu32 " context=0x%" PRIx64, event.device, event.context);
    }
    if (event.stream != 0) std::printf(" stream=0x%" PRIx64, event.stream);
    std::printf(" thread=%" PRIu32, event.thread);
    if (event.phase != 0) std::printf(" phase=%s", json(recording.phase(event.phase)).c_str());
    if (event.range != 0) std::printf(" range=%s", json(recording.range(event.range)).c_str());
    if (event.site != 0) {
      std::printf(" site=%" PRIu32 " stack=%s", event.site,
                  json(stack_of(recording, event.site).substr(1)).c_str());
    }
    std::putchar('\n');
  }
}

// Lines of other stacks with the same text are added up as far as kLinesKept reaches.
void show_folded(const Selection& selection) {
  constexpr size_t kLinesKept = size_t{16} << 20;
  const Recording& recording = selection.recording;
  const By by = selection.options.by.value_or(By::site);
  const Ranking ranking(selection, [&](const Event& event) {
    return uint64_t{by == By::site ? 0 : number_of(event, by)} << 32 | event.site;
  });
  std::map<std::string, uint64_t> lines;
  size_t kept = 0;
  const auto show = [&] {
    for (const auto& [stack, value] : lines) {
      std::printf("%s %" PRIu64 "\n", stack.c_str(), value);
    }
    lines.clear();
    kept = 0;
  };
  ranking.for_each([&](const Row& row) {
    const uint64_t value = figure_of(row.tally, *selection.options.sort);
    if (value == 0) return;
    const auto root = static_cast<uint32_t>(row.number >> 32);
    std::string line = by == By::site ? "" : root_of(recording, by, root);
    line += stack_of(recording, static_cast<uint32_t>(row.number));
    if (by == By::site) line.erase(0, 1);
    kept += line.size();
    lines[line] += value;
    if (kept > kLinesKept) show();
  });
  show();
}

namespace {

using Quoted = std::string (*)(std::string_view);

// Writes objects and arrays with their commas.
class Json {
 public:
  explicit Json(Quoted quoted) : quoted_(quoted) {}

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
    std::fputs(quoted_(value).c_str(), stdout);
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

  const Quoted quoted_;
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
  out.number("committed", head.committed);
  out.number("began_ns", head.began_ns);
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
  Json out(json);
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

namespace {

// An object on a line of its own; `put(out)` writes what is in it.
template <typename Put>
void put_line(Put put) {
  Json out(exact_json);
  out.open(nullptr, '{');
  put(out);
  out.close('}');
  std::putchar('\n');
}

void put_range(Json& out, const RangeDefinition& range) {
  out.open("range", '{');
  out.number("parent", range.parent);
  out.number("name", range.name);
  out.close('}');
}

void put_numbered_frames(Json& out, const std::vector<Frame>& frames) {
  out.open("site", '[');
  for (const Frame& frame : frames) {
    out.open(nullptr, '{');
    out.number("file", frame.file);
    out.number("function", frame.function);
    out.number("line", frame.line);
    out.number("offset", frame.offset);
    out.close('}');
  }
  out.close(']');
}

// Numbers refer to these, and the first of each kind is 1.
void put_definitions(const Recording& recording) {
  const auto put_all = [](const auto& definitions, auto put) {
    for (size_t number = 1; number < definitions.size(); ++number) {
      put_line([&](Json& out) { put(out, definitions[number]); });
    }
  };
  put_all(recording.names, [](Json& out, const std::string& name) { out.text("name", name); });
  put_all(recording.ranges, put_range);
  put_all(recording.phases, [](Json& out, uint32_t name) { out.number("phase", name); });
  put_all(recording.sites, put_numbered_frames);
}

void put_event(Json& out, const Event& event) {
  out.text("event", kTypeNames[static_cast<size_t>(event.type)]);
  out.text("memory", kMemoryNames[static_cast<size_t>(event.memory)]);
  const std::pair<const char*, uint64_t> numbers[] = {
      {"time_ns", event.time_ns}, {"address", event.address}, {"bytes", event.bytes},
      {"stream", event.stream},   {"context", event.context}, {"thread", event.thread},
      {"device", event.device},   {"site", event.site},       {"range", event.range},
      {"phase", event.phase},     {"code", event.code},
  };
  for (const auto& [name, number] : numbers) {
    if (number != 0) out.number(name, number);
  }
}

}  // namespace

void show_json_events(const Selection& selection) {
  const Recording& recording = selection.recording;
  put_line([&](Json& out) { put_head(out, selection); });
  put_definitions(recording);
  for (size_t i = 0; i < recording.events.size(); ++i) {
    if (!selection.has_event(i)) continue;
    put_line([&](Json& out) { put_event(out, recording.events[i]); });
  }
}

}  // namespace cistern::alloc::tool
