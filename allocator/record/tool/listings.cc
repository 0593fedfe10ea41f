// SPDX-License-Identifier: Apache-2.0
// Views for other programs: events as lines, folded stacks.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <map>

#include "allocator/record/tool/text.h"
#include "allocator/record/tool/views.h"

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
    std::printf("%.9f %s", seconds(event.time_ns), kTypeNames[static_cast<size_t>(event.type)]);
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

}  // namespace cistern::alloc::tool
