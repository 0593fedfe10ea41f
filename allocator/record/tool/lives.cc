// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/lives.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "allocator/record/event.h"
#include "allocator/record/phases.h"

namespace cistern::alloc::tool {
namespace {

class Pairing {
 public:
  Pairing(const Events& events, EventType begins, EventType ends, Lives& out)
      : events_(events), begins_(begins), ends_(ends), out_(out) {}

  void run() {
    out_.block_of_event.resize(events_.size(), kNone);
    for (uint32_t i = 0; i < events_.size(); ++i) {
      const EventType type = events_.type(i);
      if (type == begins_) {
        end_at(events_[i], i);
        begin(events_[i], i);
      } else if (type == ends_) {
        out_.block_of_event[i] = end_at(events_[i], i);
      } else if (type == EventType::context_ended) {
        end_context(events_[i].context, i);
      }
    }
  }

 private:
  void begin(const Event& event, uint32_t at) {
    const auto block = static_cast<uint32_t>(out_.blocks.size());
    out_.blocks.push_back({.allocated = at});
    out_.steps.push_back({.event = at, .block = block});
    out_.block_of_event[at] = block;
    live_of(event.memory).put(block, address_);
    next_.push_back(kNone);
    if (!ends_with_context(event.memory) && event.type != EventType::obtained) return;
    const auto [chain, is_new] = of_context_.try_emplace(event.context, Chain{block, block});
    if (!is_new) next_[std::exchange(chain->second.last, block)] = block;
  }

  uint32_t end_at(const Event& event, uint32_t at) {
    IndexTable& live = live_of(event.memory);
    const uint32_t block = live.find(event.address, address_);
    if (block == kNone) return kNone;
    live.remove(event.address, address_);
    end(block, at);
    return block;
  }

  void end(uint32_t block, uint32_t at) {
    out_.blocks[block].ended = at;
    out_.steps.push_back({.event = at, .block = block});
  }

  void end_context(uint64_t context, uint32_t at) {
    const auto chain = of_context_.find(context);
    if (chain == of_context_.end()) return;
    for (uint32_t block = chain->second.first; block != kNone; block = next_[block]) {
      if (out_.blocks[block].ended != kNone) continue;
      const Event allocated = events_[out_.blocks[block].allocated];
      live_of(allocated.memory).remove(allocated.address, address_);
      end(block, at);
    }
    of_context_.erase(chain);
  }

  IndexTable& live_of(Memory memory) { return live_[static_cast<size_t>(key_space_of(memory))]; }

  struct Address {
    const Pairing* pairing;
    uint64_t operator()(uint32_t block) const {
      return pairing->events_[pairing->out_.blocks[block].allocated].address;
    }
  };

  const Events& events_;
  const EventType begins_, ends_;
  Lives& out_;
  const Address address_{this};
  IndexTable live_[kKeySpaces];
  // The blocks of a context, also those that ended.
  struct Chain {
    uint32_t first, last;
  };
  std::map<uint64_t, Chain> of_context_;
  std::deque<uint32_t> next_;
};

}  // namespace

Lives lives_of(const Recording& recording) {
  Lives lives;
  Pairing(recording.events, EventType::allocated, EventType::freed, lives).run();
  return lives;
}

Lives chunks_of(const Recording& recording) {
  Lives chunks;
  Pairing(recording.events, EventType::obtained, EventType::released, chunks).run();
  return chunks;
}

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
