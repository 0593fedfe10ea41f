// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/automatic_phases.h"

#include <algorithm>
#include <memory>

#include "allocator/record/phases.h"
#include "allocator/record/tool/lives.h"

namespace cistern::alloc::tool {

void find_phases(Recording& recording) {
  const auto waited = [](const Event& e) { return e.type == EventType::synchronised; };
  std::vector<Event>& events = recording.events;
  if (recording.phases.size() > 1 || std::none_of(events.begin(), events.end(), waited)) return;
  const auto phases = std::make_unique<Phases>();
  const auto start = static_cast<uint32_t>(recording.names.size());
  recording.names.insert(recording.names.end(), {"(start)", "(phase)"});
  phases->name_automatic(start, start + 1);
  const Lives lives = lives_of(recording);
  auto step = lives.steps.begin();
  for (size_t i = 0; i < events.size(); ++i) {
    for (; step != lives.steps.end() && step->event == i; ++step) {
      const uint64_t bytes = events[lives.blocks[step->block].allocated].bytes;
      step->begins ? phases->allocated(nullptr, bytes) : phases->freed(bytes);
    }
    events[i].phase = phases->current(nullptr);
    if (waited(events[i])) phases->synchronised();
  }
  for (uint32_t run = 1; run <= phases->runs(); ++run) {
    recording.phases.push_back(phases->name_of(run));
  }
}

}  // namespace cistern::alloc::tool
