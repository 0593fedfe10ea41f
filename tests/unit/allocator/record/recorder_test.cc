// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/recorder.h"

#include <atomic>
#include <map>
#include <optional>

#include "allocator/record/tool/recording.h"
#include "tests/catch.h"
#include "tests/unit/allocator/record/events.h"
#include "tests/unit/allocator/record/written.h"

namespace recorder_test {

using namespace cistern::alloc;
using test::FixedDefinitions;
using test::MemorySink;
using test::Random;

namespace {

struct Recorded {
  explicit Recorded(uint64_t seed, size_t writes = SIZE_MAX) : random(seed) {
    test::make_up_definitions(random, definitions);
    sink.writes = writes;
    REQUIRE(recorder->begin(&sink, &definitions, test::head_of_a_test(), kRecordingPooled));
  }

  tool::Recording read() const {
    std::string problem;
    std::optional<tool::Recording> recording = tool::read_recording(sink.file, problem);
    INFO(problem);
    REQUIRE(recording.has_value());
    return std::move(*recording);
  }

  Random random;
  FixedDefinitions definitions;
  MemorySink sink;
  std::unique_ptr<Recorder> recorder = std::make_unique<Recorder>();
};

uint64_t seed_of_this_run() { return std::random_device{}(); }

}  // namespace

TEST_CASE("recorder: what was put is read, block after block") {
  const uint64_t seed = seed_of_this_run();
  INFO("seed " << seed);
  Recorded recorded(seed);
  std::vector<Event> events;
  for (uint64_t i = 0; i < 20000; ++i) {
    events.push_back(test::made_up_event(recorded.random, 7, 10 * i));
    recorded.recorder->put(3, events.back());
  }
  recorded.recorder->end();
  CHECK(recorded.sink.file.size() > 2 * kMostBlockBytes);
  const tool::Recording recording = recorded.read();
  REQUIRE(recording.events.size() == events.size());
  for (size_t i = 0; i < events.size(); ++i) REQUIRE(test::same(recording.events[i], events[i]));
  CHECK((recording.head.flags & kRecordingEnded) != 0);
  CHECK(recording.head.lost == 0);
  CHECK(std::string(recording.head.program) == "/usr/bin/program");
}

TEST_CASE("recorder: what events refer to is read") {
  Recorded recorded(1);
  recorded.recorder->put(0, test::allocation(1, 1, 30));
  recorded.recorder->end();
  const tool::Recording recording = recorded.read();
  REQUIRE(recording.names.size() == 41);
  REQUIRE(recording.sites.size() == 31);
  REQUIRE(recording.ranges.size() == 10);
  REQUIRE(recording.phases.size() == 5);
  for (size_t i = 1; i <= 40; ++i)
    CHECK(recording.names[i] == recorded.definitions.all_names[i - 1]);
  for (size_t i = 1; i <= 30; ++i)
    CHECK(recording.sites[i] == recorded.definitions.all_sites[i - 1]);
  for (size_t i = 1; i <= 9; ++i) {
    CHECK(recording.ranges[i].parent == recorded.definitions.all_ranges[i - 1].parent);
  }
}

TEST_CASE("recorder: what is named after a block was written is in a later one") {
  Recorded recorded(1);
  recorded.recorder->put(0, test::allocation(1, 1, 30));
  recorded.recorder->flush();
  recorded.definitions.all_names.push_back("late");
  recorded.definitions.all_sites.push_back({{.file = 41, .function = 0, .line = 0, .offset = 5}});
  recorded.recorder->put(0, test::allocation(2, 1, 31));
  recorded.recorder->flush();
  const tool::Recording recording = recorded.read();
  CHECK(recording.names.back() == "late");
  CHECK(recording.sites.back().front().file == 41);
  CHECK(recording.events.back().site == 31);
}

TEST_CASE("recorder: what was flushed is readable without an end") {
  Recorded recorded(1);
  recorded.recorder->put(0, test::allocation(1, 1));
  recorded.recorder->flush();
  recorded.recorder->put(0, test::allocation(2, 1));
  const tool::Recording recording = recorded.read();
  CHECK(recording.events.size() == 1);
  CHECK(recording.head.flags == kRecordingPooled);
}

TEST_CASE("recorder: a sink that refuses leaves a recording that ends there") {
  size_t whole = 0;
  for (size_t writes = 1; writes < 14; ++writes) {
    INFO("refuses after " << writes << " writes");
    Recorded recorded(5, writes);
    const size_t kEvents = 4;
    for (uint64_t i = 0; i < kEvents; ++i) {
      recorded.recorder->put(0, test::allocation(i, 1));
      recorded.recorder->flush();
    }
    const bool cut = recorded.recorder->cut_short();
    recorded.sink.writes = SIZE_MAX;  // there is room again: nothing more is recorded
    recorded.recorder->put(0, test::allocation(9, 1));
    recorded.recorder->end();
    const tool::Recording recording = recorded.read();
    CHECK(cut == (recording.head.flags != (kRecordingPooled | kRecordingEnded)));
    CHECK(recording.events.size() + recorded.recorder->lost() == kEvents + 1);
    whole += !cut;
  }
  CHECK(whole > 0);
}

TEST_CASE("recorder: what other threads had put is lost with what the sink refuses, and counted") {
  Recorded recorded(5);
  for (unsigned shard = 0; shard < 3; ++shard) {
    recorded.recorder->put(shard, test::allocation(shard, 1));
    recorded.recorder->put(shard, test::allocation(shard, 1));
  }
  recorded.sink.writes = 0;
  recorded.recorder->flush();
  CHECK(recorded.recorder->cut_short());
  CHECK(recorded.recorder->lost() == 6);
}

TEST_CASE("recorder: a full sink that still takes the head says that the recording ends early") {
  struct Full final : RecordingSink {
    bool write(const void* data, size_t bytes, uint64_t at) override {
      return at + bytes <= 4096 && sink.write(data, bytes, at);
    }
    MemorySink sink;
  } full;
  FixedDefinitions definitions;
  const auto recorder = std::make_unique<Recorder>();
  REQUIRE(recorder->begin(&full, &definitions, test::head_of_a_test(), 0));
  recorder->put(0, test::allocation(1, 1));
  recorder->end();
  std::string problem;
  const auto recording = tool::read_recording(full.sink.file, problem);
  REQUIRE(recording.has_value());
  CHECK(recording->head.flags == kRecordingCutShort);
  CHECK(recording->head.lost == 1);
  CHECK(recording->events.empty());
}

TEST_CASE("recorder: nothing is put before the beginning, after the end, or once abandoned") {
  const auto idle = std::make_unique<Recorder>();
  idle->put(0, test::allocation(1, 1));
  CHECK(idle->lost() == 1);
  Recorded recorded(1);
  recorded.recorder->put(0, test::allocation(1, 1));
  recorded.recorder->abandon();
  const std::vector<uint8_t> before = recorded.sink.file;
  recorded.recorder->put(0, test::allocation(2, 1));
  recorded.recorder->flush();
  recorded.recorder->end();
  CHECK(recorded.sink.file == before);
}

TEST_CASE("recorder: 64 threads put while another flushes") {
  constexpr uint32_t kThreads = 64;
  constexpr size_t kEvents = 1000;
  const uint64_t seed = seed_of_this_run();
  INFO("seed " << seed);
  Recorded recorded(seed);
  std::atomic<bool> done{false};
  std::thread flusher([&] {
    while (!done) recorded.recorder->flush();
  });
  std::map<uint32_t, std::vector<Event>> put;
  std::vector<std::thread> threads;
  for (uint32_t thread = 1; thread <= kThreads; ++thread) {
    Random own(seed + thread);
    put[thread] = test::plausible_events(own, thread, kEvents);
    threads.emplace_back([&recorded, thread, &events = put[thread]] {
      for (const Event& event : events) recorded.recorder->put(thread, event);
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  flusher.join();
  recorded.recorder->end();
  const tool::Recording recording = recorded.read();
  REQUIRE(recording.events.size() == kThreads * kEvents);
  std::map<uint32_t, size_t> next;
  uint64_t time_ns = 0;
  for (const Event& event : recording.events) {
    REQUIRE(event.time_ns >= time_ns);
    time_ns = event.time_ns;
    REQUIRE(test::same(event, put[event.thread][next[event.thread]++]));
  }
}

}  // namespace recorder_test
