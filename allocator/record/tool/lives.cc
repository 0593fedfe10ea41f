// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/lives.h"

#include <map>
#include <unordered_map>

#include "allocator/record/block_key.h"

namespace cistern::alloc::tool {
namespace {

class Pairing {
 public:
  Pairing(const Recording& recording, Lives& out) : events_(recording.events), out_(out) {}

  void run() {
    out_.block_of_event.assign(events_.size(), kNone);
    for (size_t i = 0; i < events_.size(); ++i) {
      const Event& event = events_[i];
      if (event.type == EventType::allocated) {
        end_at(event, i);
        begin(event, i);
      } else if (event.type == EventType::freed) {
        out_.block_of_event[i] = end_at(event, i);
      } else if (event.type == EventType::context_ended) {
        end_context(event, i);
      }
    }
  }

 private:
  void begin(const Event& event, size_t at) {
    const size_t block = out_.blocks.size();
    out_.blocks.push_back({.allocated = at});
    out_.steps.push_back({.event = at, .block = block, .begins = true});
    out_.block_of_event[at] = block;
    live_of(event)[event.address] = block;
    if (ends_with_context(event.memory)) of_context_[event.context].push_back(block);
  }

  size_t end_at(const Event& event, size_t at) {
    auto& live = live_of(event);
    const auto found = live.find(event.address);
    if (found == live.end()) return kNone;
    const size_t block = found->second;
    live.erase(found);
    end(block, at);
    return block;
  }

  void end(size_t block, size_t at) {
    out_.blocks[block].ended = at;
    out_.steps.push_back({.event = at, .block = block, .begins = false});
  }

  void end_context(const Event& event, size_t at) {
    const auto of_context = of_context_.find(event.context);
    if (of_context == of_context_.end()) return;
    for (const size_t block : of_context->second) {
      if (out_.blocks[block].ended != kNone) continue;
      const Event& allocated = events_[out_.blocks[block].allocated];
      live_of(allocated).erase(allocated.address);
      end(block, at);
    }
    of_context_.erase(of_context);
  }

  std::unordered_map<uint64_t, size_t>& live_of(const Event& event) {
    return live_[static_cast<size_t>(key_space_of(event.memory))];
  }

  const std::vector<Event>& events_;
  Lives& out_;
  std::unordered_map<uint64_t, size_t> live_[kKeySpaces];
  std::unordered_map<uint64_t, std::vector<size_t>> of_context_;  // those that ended, too
};

}  // namespace

Lives lives_of(const Recording& recording) {
  Lives lives;
  Pairing(recording, lives).run();
  return lives;
}

}  // namespace cistern::alloc::tool
