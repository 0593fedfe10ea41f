// SPDX-License-Identifier: Apache-2.0
// Recordings in memory, written by the recorder.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocator/record/recorder.h"

namespace cistern::alloc::test {

// A file that is a vector. After `writes` writes it is full.
class MemorySink final : public RecordingSink {
 public:
  bool write(const void* data, size_t bytes, uint64_t at) override {
    if (writes == 0) return false;
    --writes;
    if (file.size() < at + bytes) file.resize(at + bytes);
    std::copy_n(static_cast<const uint8_t*>(data), bytes, file.data() + at);
    return true;
  }

  size_t writes = SIZE_MAX;
  std::vector<uint8_t> file;
};

class FixedDefinitions final : public Definitions {
 public:
  struct Range {
    uint32_t parent, name;
  };

  uint32_t names() override { return size(all_names); }
  const char* name(uint32_t number) override { return all_names[number - 1].c_str(); }
  uint32_t ranges() override { return size(all_ranges); }
  void range(uint32_t number, uint32_t* parent, uint32_t* name) override {
    *parent = all_ranges[number - 1].parent;
    *name = all_ranges[number - 1].name;
  }
  uint32_t phases() override { return size(all_phases); }
  uint32_t phase_name(uint32_t number) override { return all_phases[number - 1]; }
  uint32_t sites() override { return size(all_sites); }
  int frames(uint32_t site, Frame* out) override {
    const std::vector<Frame>& frames = all_sites[site - 1];
    std::copy(frames.begin(), frames.end(), out);
    return static_cast<int>(frames.size());
  }

  std::vector<std::string> all_names;
  std::vector<Range> all_ranges;
  std::vector<uint32_t> all_phases;
  std::vector<std::vector<Frame>> all_sites;

 private:
  static uint32_t size(const auto& all) { return static_cast<uint32_t>(all.size()); }
};

using Random = std::mt19937_64;

inline uint32_t below(Random& random, uint64_t n) { return static_cast<uint32_t>(random() % n); }

inline void make_up_definitions(Random& random, FixedDefinitions& out) {
  for (uint32_t i = 0; i < 40; ++i) {
    out.all_names.push_back("/lib/name \xC3\xA9" + std::to_string(i) + ".so");
  }
  for (uint32_t i = 1; i <= 9; ++i)
    out.all_ranges.push_back({below(random, i), 1 + below(random, 40)});
  for (uint32_t i = 1; i <= 4; ++i) out.all_phases.push_back(1 + below(random, 40));
  for (uint32_t i = 1; i <= 30; ++i) {
    std::vector<Frame> frames(i == 30 ? kMostFrames : 1 + below(random, 6));
    for (Frame& frame : frames) {
      const bool python = random() % 2 == 0;
      frame = {.file = 1 + below(random, 40),
               .function = python ? 1 + below(random, 40) : 0,
               .line = python ? below(random, 1000) : 0,
               .offset = python ? 0 : random() >> below(random, 64)};
    }
    out.all_sites.push_back(frames);
  }
}

// Consistent with what is told of an event of its type: what a reader gives back is the same.
inline Event made_up_event(Random& random, uint32_t thread, uint64_t time_ns) {
  Event event;
  event.type = static_cast<EventType>(1 + below(random, kLastEventType));
  event.memory = static_cast<Memory>(below(random, kMemories));
  event.time_ns = time_ns;
  if (has_address(event.type)) event.address = random() >> below(random, 64);
  if (has_bytes(event.type)) event.bytes = random() >> below(random, 64);
  if (event.type == EventType::refused) event.code = below(random, 1000);
  const unsigned told = states_of(event.type);
  const auto is_told = [&](State state) { return (told & bit(state)) != 0; };
  if (is_told(State::thread)) event.thread = thread;
  if (is_told(State::device)) event.device = below(random, 3);
  if (is_told(State::context)) event.context = 0x5000 + random() % 3;
  if (is_told(State::stream)) event.stream = random() % 3 == 0 ? random() : 0;
  if (is_told(State::site)) event.site = below(random, 31);
  if (is_told(State::range)) event.range = below(random, 10);
  if (is_told(State::phase)) event.phase = below(random, 5);
  return event;
}

// What a program does: few blocks, many of them freed soon, on two devices.
inline std::vector<Event> plausible_events(Random& random, uint32_t thread, size_t count) {
  std::vector<Event> events, live;
  uint64_t time_ns = random() % 1000;
  for (uint64_t serial = 0; events.size() < count; ++serial) {
    time_ns += random() % 500;
    Event event = made_up_event(random, thread, time_ns);
    const uint64_t choice = random() % 100;
    if (choice < 45 && !live.empty()) {
      std::swap(live[below(random, live.size())], live.back());
      event.type = EventType::freed;
      event.memory = live.back().memory;
      event.address = live.back().address;
      live.pop_back();
    } else if (choice < 95) {
      event.type = EventType::allocated;
      event.address = uint64_t{0x7F00'0000'0000} + (uint64_t{thread} << 32) + serial * 512;
      event.device = below(random, 2);
      event.context = 0x5000 + event.device;
      event.site = below(random, 31);
      event.bytes = 1 + random() % (1 << 20);
      live.push_back(event);
    }
    if (!has_bytes(event.type)) event.bytes = 0;
    if (event.type != EventType::refused) event.code = 0;
    if (event.type == EventType::freed) event.device = event.site = 0, event.context = 0;
    events.push_back(event);
  }
  return events;
}

inline RecordingHead head_of_a_test() {
  RecordingHead head{};
  head.began_ns = 1;
  head.began_unix_ns = 1'700'000'000'000'000'000;
  head.process = 4711;
  std::strcpy(head.program, "/usr/bin/program");
  std::strcpy(head.host, "host");
  std::strcpy(head.policy, "CISTERN_RECORD=file");
  return head;
}

// `threads` threads that record `events` each.
inline std::vector<uint8_t> written_recording(uint64_t seed, uint32_t threads, size_t events) {
  Random random(seed);
  FixedDefinitions definitions;
  make_up_definitions(random, definitions);
  MemorySink sink;
  const auto recorder = std::make_unique<Recorder>();
  recorder->begin(&sink, &definitions, head_of_a_test(), kRecordingHasSites | kRecordingPooled);
  std::vector<std::thread> running;
  for (uint32_t thread = 1; thread <= threads; ++thread) {
    running.emplace_back([&recorder, seed, thread, events] {
      Random own(seed * 1000 + thread);
      for (const Event& event : plausible_events(own, thread, events)) recorder->put(thread, event);
    });
  }
  for (std::thread& thread : running) thread.join();
  recorder->end();
  return sink.file;
}

}  // namespace cistern::alloc::test
