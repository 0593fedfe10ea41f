// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/automatic_phases.h"

#include <memory>
#include <utility>
#include <vector>

#include "allocator/record/phases.h"
#include "allocator/record/tool/lives.h"

namespace cistern::alloc::tool {

void find_phases(Recording& recording) {
  Events& events = recording.events;
  const auto waited = [&](size_t i) { return events.type(i) == EventType::synchronised; };
  bool any = false;
  for (size_t i = 0; i < events.size() && !any; ++i) any = waited(i);
  if (recording.phases.size() > 1 || !any) return;
  const auto phases = std::make_unique<Phases>();
  const auto start = static_cast<uint32_t>(recording.names.size());
  recording.names.insert(recording.names.end(), {"(start)", "(phase)"});
  phases->name_automatic(start, start + 1);
  const Lives lives = lives_of(recording);
  auto step = lives.steps.begin();
  std::vector<uint32_t> begins;
  for (uint32_t i = 0; i < events.size(); ++i) {
    for (; step != lives.steps.end() && step->event == i; ++step) {
      const uint64_t bytes = events[lives.blocks[step->block].allocated].bytes;
      lives.begins(*step) ? phases->allocated(nullptr, bytes) : phases->freed(bytes);
    }
    while (begins.size() < phases->current(nullptr)) begins.push_back(i);
    if (waited(i)) phases->synchronised();
  }
  events.set_phases(std::move(begins));
  for (uint32_t run = 1; run <= phases->runs(); ++run) {
    recording.phases.push_back(phases->name_of(run));
  }
}

}  // namespace cistern::alloc::tool
