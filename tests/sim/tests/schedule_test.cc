// SPDX-License-Identifier: Apache-2.0
//
// The scheduler by seed, the virtual clock, and what the watcher writes.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "catch.h"
#include "device_code.h"
#include "tests/sim/include/simcuda/watch.h"

namespace {

constexpr size_t kUnit = size_t{2} << 20;

struct Step {
  std::string* order;
  char name;
};

void note(void* step) {
  const auto* const done = static_cast<Step*>(step);
  *done->order += done->name;
}

// In which order three streams' callbacks ran.
std::string order_under(const char* schedule) {
  const TemporaryFile result;
  REQUIRE(in_child({{"SIMCUDA_SCHEDULE", schedule}}, [&] {
    start();
    std::string order;
    Step steps[] = {{&order, 'a'}, {&order, 'b'}, {&order, 'c'}};
    CUstream streams[] = {new_stream(), new_stream(), new_stream()};
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 3; ++i) {
        EXPECT_OK(cuLaunchHostFunc(streams[i], note, &steps[i]));
      }
    }
    EXPECT(order.empty());  // nothing runs before the host waits or asks
    EXPECT_OK(cuCtxSynchronize());
    std::ofstream(result.path()) << order << '\n';
  }));
  return result.lines().at(0);
}

}  // namespace

TEST_CASE("a seed stands for one order of execution, other seeds for others") {
  std::set<std::string> orders;
  for (int seed = 0; seed < 20; ++seed) {
    const std::string schedule = "seed:" + std::to_string(seed);
    const std::string order = order_under(schedule.c_str());
    CHECK(order.size() == 9);
    CHECK(order_under(schedule.c_str()) == order);
    orders.insert(order);
  }
  CHECK(orders.size() > 10);
}

TEST_CASE("a wait runs what it needs, and under some seeds nothing else") {
  int others_pending = 0;
  for (int seed = 0; seed < 20; ++seed) {
    const std::string schedule = "seed:" + std::to_string(seed);
    const TemporaryFile result;
    REQUIRE(in_child({{"SIMCUDA_SCHEDULE", schedule.c_str()}}, [&] {
      start();
      std::string order;
      Step other{&order, 'o'};
      Step wanted{&order, 'w'};
      CUstream stream = new_stream();
      EXPECT_OK(cuLaunchHostFunc(new_stream(), note, &other));
      EXPECT_OK(cuLaunchHostFunc(stream, note, &wanted));
      EXPECT_OK(cuStreamSynchronize(stream));
      EXPECT(order.find('w') != std::string::npos);
      std::ofstream(result.path()) << order << '\n';
    }));
    others_pending += result.lines().at(0) == "w";
  }
  CHECK(others_pending > 2);
  CHECK(others_pending < 20);
}

// On threads the first stream may be done before the host hands the second its work: then they do
// not overlap.
TEST_CASE("a virtual clock moves by latencies, which overlap where streams do") {
  for (const char* schedule : {"threads", "seed:3"}) {
    INFO(schedule);
    CHECK(in_child({{"SIMCUDA_CLOCK", "virtual"},
                    {"SIMCUDA_SCHEDULE", schedule},
                    {"SIMCUDA_LATENCY", "cuMemsetD8Async=3600000ms"}},
                   [] {
                     start();
                     CUstream one = new_stream();
                     CUstream two = new_stream();
                     const CUdeviceptr block = new_block(kUnit);
                     const int64_t before = simcuda_clock_ns();
                     for (CUstream stream : {one, one, two}) {
                       EXPECT_OK(cuMemsetD8Async(block + (stream == two ? 64 : 0), 0, 1, stream));
                     }
                     EXPECT_OK(cuCtxSynchronize());
                     constexpr int64_t kHour = int64_t{3600} * 1000 * 1000 * 1000;
                     const int64_t passed = simcuda_clock_ns() - before;
                     const bool in_turn = getenv("SIMCUDA_SCHEDULE")[0] == 's';
                     EXPECT(passed == 2 * kHour || (!in_turn && passed == 3 * kHour));
                     simcuda_clock_advance(5);
                     EXPECT(simcuda_clock_ns() - before == passed + 5);
                   }));
  }
}

TEST_CASE("a finding ends the process where that is asked for") {
  int signal = 0;
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    setenv("SIMCUDA_RACES", "abort", 1);
    setenv("SIMCUDA_RACES_FILE", "/dev/null", 1);
    start();
    static_cast<void>(cuMemFree(0x1000));
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) signal = WTERMSIG(status);
  CHECK(signal == SIGABRT);
}

TEST_CASE("a race names both sides and the lives of the bytes") {
  const TemporaryFile findings;
  REQUIRE(in_child({{"SIMCUDA_RACES", "report"}, {"SIMCUDA_RACES_FILE", findings.path()}}, [] {
    start();
    const CUdeviceptr slab = new_block(kUnit);
    simcuda_block_begin(slab, 1024);
    fill_words(new_stream(), slab, 8, 1);
    simcuda_block_end(slab);
    simcuda_block_begin(slab, 512);
    EXPECT_OK(cuMemsetD8Async(slab + 4, 0, 4, new_stream()));
  }));
  const auto lines = findings.lines();
  REQUIRE(lines.size() == 6);
  CHECK(lines[0].find("+4: write by cuMemsetD8Async is not ordered with write by "
                      "cuLaunchKernel(fill)") != std::string::npos);
  CHECK(lines[1].starts_with("  first: write by cuLaunchKernel(fill) #"));
  CHECK(lines[2].starts_with("  second: write by cuMemsetD8Async #"));
  CHECK(lines[3].find("+512 begun by pool") != std::string::npos);
  CHECK(lines[4].find("+1024 begun by pool") != std::string::npos);
  CHECK(lines[5].find("+2097152 begun by cuMemAlloc_v2") != std::string::npos);
}

TEST_CASE("a unit that is never released is reported at the end, one that is released is not") {
  const TemporaryFile findings;
  REQUIRE(in_child({{"SIMCUDA_LEAKS", "report"}, {"SIMCUDA_RACES_FILE", findings.path()}}, [] {
    start();
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle kept = 0;
    CUmemGenericAllocationHandle given_back = 0;
    EXPECT_OK(cuMemCreate(&kept, kUnit, &properties, 0));
    EXPECT_OK(cuMemCreate(&given_back, 2 * kUnit, &properties, 0));
    EXPECT_OK(cuMemRelease(given_back));
    EXPECT_OK(cuMemFree(new_block(1000)));
    std::exit(0);  // with destructors, unlike _exit
  }));
  const auto lines = findings.lines();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("simcuda: leak: "));
  CHECK(lines[0].find("+2097152 of cuMemCreate #") != std::string::npos);
}
