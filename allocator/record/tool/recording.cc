// SPDX-License-Identifier: Apache-2.0
// The events of a recording, and the lives of its blocks.
#include "allocator/record/tool/recording.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "allocator/record/event.h"
#include "allocator/record/phases.h"

namespace cistern::alloc::tool {

// --- events ---

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

// --- their order ---

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

// --- lives of blocks and chunks ---

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

// --- automatic phases ---

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
