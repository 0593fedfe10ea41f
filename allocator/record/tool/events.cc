// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/reader.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace cistern::alloc::tool {

Events::Events(std::initializer_list<Event> events) {
  for (const Event& e : events) {
    set_state({e.thread, e.device, e.context, e.stream, e.site, e.range, e.phase});
    uint64_t values[3];
    size_t count = 0;
    if (has_address(e.type)) values[count++] = e.address;
    if (has_bytes(e.type)) values[count++] = e.bytes;
    if (e.type == EventType::refused) values[count++] = e.code;
    add(e.type, e.memory, e.time_ns, values);
  }
}

void Events::set_state(const uint64_t (&state)[kStates]) {
  const auto of = [&](State what) { return state[static_cast<size_t>(what)]; };
  const auto number = [&](State what) { return static_cast<uint32_t>(of(what)); };
  states_.push_back({of(State::context), of(State::stream), number(State::thread),
                     number(State::device), number(State::site), number(State::range),
                     number(State::phase)});
}

void Events::add(EventType type, Memory memory, uint64_t time_ns, const uint64_t* values) {
  events_.push_back(
      {time_ns, static_cast<uint32_t>(states_.size() - 1), static_cast<uint32_t>(values_.size())});
  tags_.push_back(static_cast<uint8_t>(static_cast<unsigned>(type) | static_cast<unsigned>(memory)
                                                                         << kTypeBits));
  const int count = has_address(type) + has_bytes(type) + (type == EventType::refused);
  values_.insert(values_.end(), values, values + count);
}

Event Events::operator[](size_t i) const {
  const Compact& at = events_[i];
  const StateRow& row = states_[at.state];
  Event event;
  event.type = type(i);
  event.memory = static_cast<Memory>(tags_[i] >> kTypeBits);
  event.time_ns = at.time_ns;
  size_t value = at.values;
  if (has_address(event.type)) event.address = values_[value++];
  if (has_bytes(event.type)) event.bytes = values_[value++];
  if (event.type == EventType::refused) event.code = static_cast<uint32_t>(values_[value]);
  const unsigned told = states_of(event.type);
  const auto tell = [told](State what, auto& out, auto from) {
    if ((told & bit(what)) != 0) out = from;
  };
  tell(State::thread, event.thread, row.thread);
  tell(State::device, event.device, row.device);
  tell(State::context, event.context, row.context);
  tell(State::stream, event.stream, row.stream);
  tell(State::site, event.site, row.site);
  tell(State::range, event.range, row.range);
  tell(State::phase, event.phase, row.phase);
  if (!phase_begins_.empty()) {
    const auto behind = std::ranges::upper_bound(phase_begins_, static_cast<uint32_t>(i));
    event.phase = static_cast<uint32_t>(behind - phase_begins_.begin());
  }
  return event;
}

// Along each cycle, so that there is no second copy.
void Events::arrange(std::vector<uint32_t>& order) {
  for (uint32_t start = 0; start < order.size(); ++start) {
    if (order[start] == start) continue;
    const Compact event = events_[start];
    const uint8_t tag = tags_[start];
    uint32_t to = start;
    for (uint32_t from = order[to]; from != start; from = order[to]) {
      events_[to] = events_[from];
      tags_[to] = tags_[from];
      order[to] = to;
      to = from;
    }
    events_[to] = event;
    tags_[to] = tag;
    order[to] = to;
  }
}

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
