// SPDX-License-Identifier: Apache-2.0
// Blocks that the planner gives memory of their own, and the log of the others.
#include "allocator/plan/tool/tool.h"

#include "allocator/plan/plan_file.h"
#include "allocator/plan/planner.h"
#include "config/text.h"
#include "tests/catch.h"
#include "tests/unit/allocator/plan/cases.h"
#include "tests/unit/allocator/record/written.h"

namespace cistern::alloc::plan::selection_test {
namespace {

// z = sum(x, y); m = matmul(y, z); fc takes half of what m leaves
const std::string kTable = "id,lower,upper,size\nx,0,3,8\ny,1,5,8\nz,2,5,8\nm,4,6,8\nfc,7,8,4\n";

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Input read(std::span<const uint8_t> file, const Wanted& wanted) {
  Input input;
  std::string problem;
  REQUIRE(read_input(file, wanted, input, problem));
  return input;
}

struct Outcome {
  Skipped skipped;
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
  std::string log, plan;
};

Outcome outcome_of(const Input& input, const Skip& skip) {
  Outcome out;
  out.skipped = skipped_of(input, skip);
  const std::vector<Lifetime> lives = lives_to_plan(input, out.skipped);
  Problem problem;
  REQUIRE(problem.build(lives, 1) == Built::yes);
  Planned planned;
  PlannerOptions options;
  options.steps = 100'000;
  REQUIRE(plan(problem, options, planned));
  out.offsets.assign(planned.offsets.begin(), planned.offsets.end());
  out.bytes = planned.bytes;
  CHECK(test::wrong_with(input.lives, out.offsets, out.bytes, 1).empty());
  const Result result = {input, problem, out.offsets, out.bytes, 1};
  out.log = reuse_text(result);
  out.plan = plan_text(result);
  return out;
}

Outcome outcome_of_table(const Skip& skip) {
  Wanted wanted;
  wanted.log = true;
  wanted.skip = skip;
  return outcome_of(read(bytes_of(kTable), wanted), skip);
}

Skip skip_globs(const char* text) {
  Skip skip;
  skip.globs = text;
  return skip;
}

Skip skip_grads() {
  Skip skip;
  skip.grads = true;
  return skip;
}

Skip skip_sizes(const char* text) {
  Skip skip;
  REQUIRE(config::parse_size_ranges(text, skip.sizes));
  return skip;
}

TEST_CASE("plan log: which block takes over whose memory, and the bytes saved", "[plan]") {
  const Outcome out = outcome_of_table({});
  CHECK(out.bytes == 24);
  CHECK(out.log.find("reuse 1: 8 bytes for m; of a block of 8 bytes of x; 8 saved\n") == 0);
  CHECK(out.log.find("reuse 2: 4 bytes for fc; of a block of 8 bytes of ") != std::string::npos);
  CHECK(out.log.find(
            "reuse        2 of 5 requests take over another's memory; 36 bytes requested, 24 "
            "planned, 12 saved\n") != std::string::npos);
}

TEST_CASE("plan skip: what a pattern or a size names has bytes of its own", "[plan]") {
  const struct {
    Skip skip;
    std::vector<bool> alone;
    std::vector<uint64_t> requests;
  } cases[] = {
      {skip_globs("x"), {true, false, false, false, false}, {1}},
      {skip_globs("fc*,?,nothing"), {true, true, true, true, true}, {1, 4, 0}},
      {skip_sizes("4"), {false, false, false, false, true}, {1}},
      {skip_sizes("1-7,8"), {true, true, true, true, true}, {1, 4}},
      {skip_grads(), {false, false, false, false, false}, {0}},
  };
  for (const auto& one : cases) {
    const Outcome out = outcome_of_table(one.skip);
    CAPTURE(one.skip.globs, out.log);
    CHECK(out.skipped.alone == one.alone);
    std::vector<uint64_t> requests;
    for (const SkipEntry& entry : out.skipped.entries) requests.push_back(entry.requests);
    CHECK(requests == one.requests);
    for (size_t a = 0; a < out.offsets.size(); ++a) {
      for (size_t b = 0; b < out.offsets.size(); ++b) {
        if (a == b || !one.alone[a]) continue;
        const uint64_t bytes_a = a == 4 ? 4 : 8, bytes_b = b == 4 ? 4 : 8;
        CHECK((out.offsets[a] >= out.offsets[b] + bytes_b ||
               out.offsets[b] >= out.offsets[a] + bytes_a));
      }
    }
    Plan plan;
    CHECK(plan.read(bytes_of(out.plan)).what == nullptr);
  }
}

TEST_CASE("plan skip: without entries nothing is kept apart", "[plan]") {
  const Skipped skipped = skipped_of(read(bytes_of(kTable), {}), {});
  CHECK(skipped.alone == std::vector<bool>(5));
  CHECK(skipped.entries.empty());
}

struct From {
  uint32_t range, site;
};

// Allocations that come from there.
std::vector<uint8_t> recorded(alloc::test::FixedDefinitions& definitions,
                              const std::vector<From>& all) {
  alloc::test::MemorySink sink;
  const auto recorder = std::make_unique<Recorder>();
  recorder->begin(&sink, &definitions, alloc::test::head_of_a_test(),
                  kRecordingHasSites | kRecordingPooled);
  Event event;
  event.type = EventType::allocated;
  event.bytes = 512;
  for (const From& from : all) {
    event.address += 4096;
    event.range = from.range;
    event.site = from.site;
    recorder->put(1, event);
  }
  recorder->end();
  return sink.file;
}

TEST_CASE("plan skip: ranges, their messages, files and functions of a recording", "[plan]") {
  alloc::test::FixedDefinitions definitions;
  definitions.all_names = {"trainer/step", "backward", "/opt/net/model.py", "forward"};
  definitions.all_ranges = {{0, 1}, {1, 2}};
  definitions.all_sites = {{{.file = 3, .function = 4, .line = 7, .offset = 0}}};
  const auto file = recorded(
      definitions, {{.range = 1, .site = 0}, {.range = 2, .site = 0}, {.range = 0, .site = 1}});
  Wanted wanted;
  wanted.log = true;
  wanted.skip.grads = true;
  wanted.skip.globs = "step,trainer/step,model.py,/opt/*,forward,other";
  const Input input = read(file, wanted);
  const Skipped skipped = skipped_of(input, wanted.skip);
  std::vector<uint64_t> requests;
  for (const SkipEntry& entry : skipped.entries) requests.push_back(entry.requests);
  CHECK(requests == std::vector<uint64_t>{2, 2, 1, 1, 1, 0, 1});
  CHECK(input.known[input.origins[0]].text == "trainer/step");
  CHECK(input.known[input.origins[1]].text == "trainer/step/backward");
  CHECK(input.known[input.origins[2]].text == "forward (/opt/net/model.py:7)");
  wanted.skip = {};
  CHECK(read(file, wanted).known[0].names.empty());
}

// Steps of three blocks, of which the next step frees the second one.
TEST_CASE("plan iteration: a block that outlives it has no place in the plan", "[plan]") {
  Input input;
  input.counts_calls = true;
  const auto get = [&](uint64_t bytes) {
    input.lives.push_back({.from = input.calls++, .to = 0, .bytes = bytes});
    return input.lives.size() - 1;
  };
  const auto give_back = [&](size_t block) { input.lives[block].to = input.calls++; };
  size_t last = get(2000);
  for (int i = 0; i < 5; ++i) {
    const size_t first = get(1000), second = get(2000);
    give_back(first);
    const size_t third = get(3000);
    give_back(last);
    give_back(third);
    last = second;
  }
  input.lives[last].to = input.calls;  // never
  input.streams.resize(input.lives.size());
  std::string problem;
  REQUIRE(take_iteration(input, problem));
  std::vector<uint64_t> planned, outside;
  for (const Lifetime& life : input.lives) planned.push_back(life.bytes);
  for (const Outside& one : input.outside) outside.push_back(one.bytes);
  CHECK(planned == std::vector<uint64_t>{1000, 3000});
  CHECK(outside == std::vector<uint64_t>{2000});
  CHECK(input.streams.size() == input.lives.size());
}

std::string read_words(std::vector<std::string> words, Options& out) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  std::string problem;
  const bool read = read_options(static_cast<int>(all.size()), all.data(), out, problem);
  CHECK(read == problem.empty());
  return problem;
}

TEST_CASE("plan options: level, what is skipped, and the log", "[plan]") {
  Options all;
  CHECK(read_words({"a.rec", "--level", "0", "--skip", "fc", "--skip=x*", "--skip-grads",
                    "--print-log", "--skip-sizes", "1K-2K,7"},
                   all)
            .empty());
  CHECK((all.level == 0 && all.wanted.skip.grads && all.wanted.log && all.file == "a.rec"));
  CHECK(all.wanted.skip.globs == "fc,x*");
  CHECK((all.wanted.skip.sizes.count == 2 && all.wanted.skip.sizes.range[0].high == 2048));
  Options none;
  CHECK(read_words({"a.rec"}, none).empty());
  CHECK((none.level == 1 && !none.wanted.skip.by_name() && !none.wanted.origins()));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"a", "--level", "2"},
                                                {"a", "--skip", "a,,b"},
                                                {"a", "--skip-sizes", "x"},
                                                {"a", "--level", "0", "--last", "b"}}) {
    Options out;
    CHECK(read_words(words, out).find("; value seen \"") != std::string::npos);
  }
}

TEST_CASE("plan options: ten seconds, unless there is another limit", "[plan]") {
  const auto most_seconds = [](const std::vector<std::string>& words) {
    Options out;
    const std::string problem = read_words(words, out);
    return problem.empty() ? out.most_seconds() : -1;
  };
  CHECK(most_seconds({"a"}) == 10);
  CHECK(most_seconds({"a", "--seconds", "2.5"}) == 2.5);
  CHECK(most_seconds({"a", "--steps", "7"}) == Options::kMostSeconds);
  CHECK(most_seconds({"a", "--steps", "7", "--seconds", "2"}) == 2);
  for (const char* wrong : {"nan", "inf", "-1", "1e7", "2x"}) {
    CHECK(most_seconds({"a", "--seconds", wrong}) == -1);
  }
}

}  // namespace
}  // namespace cistern::alloc::plan::selection_test
