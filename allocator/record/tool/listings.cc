// SPDX-License-Identifier: Apache-2.0
// Views for other programs: events as lines, folded stacks.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
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
  std::map<size_t, size_t> id_of;  // of the selected blocks that are live
  size_t ids = 0;
  for (const Step& step : selection.lives.steps) {
    const Event& event = selection.recording.events[step.event];
    if (!selection.has(step.block) || !selection.in_time(event)) continue;
    const Event& block = selection.recording.events[selection.lives.blocks[step.block].allocated];
    const size_t id = step.begins ? ids++ : id_of[step.block];
    step.begins ? void(id_of[step.block] = id) : void(id_of.erase(step.block));
    const uint64_t stream = event.type == EventType::freed ? event.stream : block.stream;
    std::printf("%" PRIu64 ",%s,%zu,%" PRIu64 ",%" PRIu64 "\n", event.time_ns / 1000,
                step.begins ? "alloc" : "free", id, block.bytes, stream);
  }
}

void show_events(const Selection& selection) {
  const Recording& recording = selection.recording;
  for (size_t i = 0; i < recording.events.size(); ++i) {
    if (!selection.has_event(i)) continue;
    const Event& event = recording.events[i];
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

void show_folded(const Selection& selection) {
  const Recording& recording = selection.recording;
  const By by = selection.options.by.value_or(By::site);
  using Stack = std::pair<uint32_t, uint32_t>;  // what it is grouped by, and the site
  std::map<Stack, uint32_t> number_of_stack;
  std::vector<Stack> stacks;
  const Ranking ranking(selection, [&](const Event& event) {
    const Stack stack{by == By::site ? 0 : number_of(event, by), event.site};
    const auto [at, is_new] =
        number_of_stack.try_emplace(stack, static_cast<uint32_t>(stacks.size()));
    if (is_new) stacks.push_back(stack);
    return at->second;
  });
  std::map<std::string, uint64_t> lines;
  for (const auto& [number, value] : ranking.values(TallyBy::site, *selection.options.sort)) {
    const auto [root, site] = stacks[number];
    std::string line = by == By::site ? "" : root_of(recording, by, root);
    line += stack_of(recording, site);
    lines[by == By::site ? line.substr(1) : line] += value;
  }
  for (const auto& [stack, value] : lines) {
    if (value != 0) std::printf("%s %" PRIu64 "\n", stack.c_str(), value);
  }
}

}  // namespace cistern::alloc::tool
