// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/order.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>

namespace cistern::alloc::tool {
namespace {

bool ends_something(const Event& event) {
  return event.type == EventType::freed || event.type == EventType::released ||
         event.type == EventType::context_ended;
}

// Turn by turn: of every thread the frees that are next, then what follows up to its next free.
void order_one_time(std::vector<Event>::iterator begin, std::vector<Event>::iterator end) {
  struct Queue {
    std::vector<Event> events;
    size_t next = 0;
  };
  std::vector<Queue> queues;  // in the order of the threads' first events
  std::unordered_map<uint32_t, size_t> queue_of;
  for (auto event = begin; event != end; ++event) {
    const auto [at, is_new] = queue_of.try_emplace(event->thread, queues.size());
    if (is_new) queues.emplace_back();
    queues[at->second].events.push_back(*event);
  }
  const auto take_while = [&](bool ending) {
    for (Queue& queue : queues) {
      while (queue.next < queue.events.size() &&
             ends_something(queue.events[queue.next]) == ending) {
        *begin++ = queue.events[queue.next++];
      }
    }
  };
  while (begin != end) {
    take_while(true);
    take_while(false);
    std::erase_if(queues, [](const Queue& queue) { return queue.next == queue.events.size(); });
  }
}

}  // namespace

void sort_by_time(std::vector<Event>& events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  for (auto begin = events.begin(); begin != events.end();) {
    auto end = begin;
    while (end != events.end() && end->time_ns == begin->time_ns) ++end;
    if (end - begin > 1) order_one_time(begin, end);
    begin = end;
  }
}

}  // namespace cistern::alloc::tool
