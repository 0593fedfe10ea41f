// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/order.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace cistern::alloc::tool {
namespace {

bool ends_something(EventType type) {
  return type == EventType::freed || type == EventType::released ||
         type == EventType::context_ended;
}

// Turn by turn: of every thread the frees that are next, then what follows up to its next free.
// Threads come in the order of their first events.
struct Turn {
  uint32_t turn;   // even: what ends something
  uint32_t first;  // event of the thread
  uint32_t event;

  friend auto operator<=>(const Turn&, const Turn&) = default;
};

void order_one_time(const Events& events, uint32_t* begin, uint32_t* end) {
  std::sort(begin, end, [&](uint32_t a, uint32_t b) {
    const uint32_t thread_of_a = events.thread(a), thread_of_b = events.thread(b);
    return thread_of_a != thread_of_b ? thread_of_a < thread_of_b : a < b;
  });
  std::vector<Turn> turns;
  turns.reserve(static_cast<size_t>(end - begin));
  for (const uint32_t* event = begin; event != end; ++event) {
    const bool begins = !ends_something(events.type(*event));
    Turn turn{begins, *event, *event};
    if (event != begin && events.thread(event[-1]) == events.thread(*event)) {
      const uint32_t last = turns.back().turn;
      turn.turn = last + (last % 2 != begins);
      turn.first = turns.back().first;
    }
    turns.push_back(turn);
  }
  std::ranges::sort(turns);
  for (const Turn& turn : turns) *begin++ = turn.event;
}

}  // namespace

void sort_by_time(Events& events) {
  std::vector<uint32_t> order(events.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    const uint64_t time_of_a = events.time_ns(a), time_of_b = events.time_ns(b);
    return time_of_a != time_of_b ? time_of_a < time_of_b : a < b;
  });
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    for (end = begin + 1; end < order.size();) {
      if (events.time_ns(order[end]) != events.time_ns(order[begin])) break;
      ++end;
    }
    if (end - begin > 1) order_one_time(events, order.data() + begin, order.data() + end);
  }
  events.arrange(order);
}

}  // namespace cistern::alloc::tool
