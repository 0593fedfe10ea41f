// SPDX-License-Identifier: Apache-2.0
//
// Correct programs: right results and no word of the watcher under any schedule. The number of
// seeds is SIMCUDA_TEST_SEEDS (100); TEST_SEEDS=2/3 takes the second third of them.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "device_code.h"
#include "tests/catch.h"
#include "tests/sim/include/simcuda/watch.h"

namespace {

constexpr size_t kWords = 64;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr size_t kUnit = size_t{2} << 20;

// Fill on one stream, sum on another, as often as there are rounds; the order is the caller's.
struct Pipeline {
  CUstream writer = new_stream();
  CUstream reader = new_stream();
  CUdeviceptr block = new_block(kBytes);
  CUdeviceptr total = new_total(reader);
  uint64_t expected = 0;

  void write(uint32_t seed) {
    fill_words(writer, block, kWords, seed);
    expected += sum_of_filled(kWords, seed);
  }
  void read() { sum_words(reader, block, kWords, total); }
  void check() { EXPECT(read_total(reader, total) == expected); }
};

void streams_chained_by_events() {
  Pipeline pipeline;
  for (uint32_t round = 0; round < 4; ++round) {
    after(pipeline.writer, pipeline.reader);
    pipeline.write(round);
    after(pipeline.reader, pipeline.writer);
    pipeline.read();
  }
  pipeline.check();
}

void reuse_after_the_host_waited() {
  Pipeline pipeline;
  for (uint32_t round = 0; round < 4; ++round) {
    pipeline.write(round);
    EXPECT_OK(cuStreamSynchronize(pipeline.writer));
    pipeline.read();
    EXPECT_OK(cuCtxSynchronize());
  }
  pipeline.check();
}

// What a pool does: the block waits for an event to be over before anyone gets it again.
void reuse_after_polling() {
  Pipeline pipeline;
  CUevent done = nullptr;
  EXPECT_OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  for (uint32_t round = 0; round < 3; ++round) {
    pipeline.write(round);
    EXPECT_OK(cuEventRecord(done, pipeline.writer));
    while (cuEventQuery(done) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    pipeline.read();
    while (cuStreamQuery(pipeline.reader) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  }
  pipeline.check();
}

void reuse_after_an_event_of_the_whole_context() {
  Pipeline pipeline;
  CUcontext context = nullptr;
  CUevent all = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&context));
  EXPECT_OK(cuEventCreate(&all, CU_EVENT_DISABLE_TIMING));
  for (uint32_t round = 0; round < 3; ++round) {
    pipeline.write(round);
    EXPECT_OK(cuCtxRecordEvent(context, all));
    EXPECT_OK(cuStreamWaitEvent(pipeline.reader, all, 0));
    pipeline.read();
    EXPECT_OK(cuCtxRecordEvent(context, all));
    EXPECT_OK(cuCtxWaitEvent(context, all));
  }
  pipeline.check();
}

void blocks_of_one_stream_need_no_event() {
  CUstream stream = new_stream();
  const CUdeviceptr total = new_total(stream);
  const CUdeviceptr slab = new_block(kUnit);
  uint64_t expected = 0;
  for (uint32_t round = 0; round < 8; ++round) {
    simcuda_block_begin(slab, kBytes);
    fill_words(stream, slab, kWords, round);
    sum_words(stream, slab, kWords, total);
    simcuda_block_end(slab);
    expected += sum_of_filled(kWords, round);
  }
  EXPECT(read_total(stream, total) == expected);
}

void legacy_stream_orders_blocking_streams() {
  CUstream one = new_stream(CU_STREAM_DEFAULT);
  CUstream two = new_stream(CU_STREAM_DEFAULT);
  const CUdeviceptr block = new_block(kBytes);
  const CUdeviceptr total = new_total(CU_STREAM_LEGACY);
  uint64_t expected = 0;
  for (uint32_t round = 0; round < 4; ++round) {
    fill_words(one, block, kWords, round);
    sum_words(CU_STREAM_LEGACY, block, kWords, total);
    fill_words(two, block, kWords, round + 100);
    sum_words(CU_STREAM_LEGACY, block, kWords, total);
    expected += sum_of_filled(kWords, round) + sum_of_filled(kWords, round + 100);
  }
  EXPECT(read_total(CU_STREAM_LEGACY, total) == expected);
}

void many_streams_add_to_one_total() {
  CUstream streams[4];
  const CUdeviceptr total = new_total(CU_STREAM_LEGACY);
  const CUdeviceptr block = new_block(kBytes);
  fill_words(CU_STREAM_LEGACY, block, kWords, 7);
  EXPECT_OK(cuStreamSynchronize(CU_STREAM_LEGACY));
  for (CUstream& stream : streams) {
    stream = new_stream();
    sum_words(stream, block, kWords, total);
  }
  EXPECT_OK(cuCtxSynchronize());
  EXPECT(read_total(CU_STREAM_LEGACY, total) == 4 * sum_of_filled(kWords, 7));
}

void double_buffered_uploads() {
  constexpr int kBuffers = 2;
  CUstream upload = new_stream();
  CUstream work = new_stream();
  const CUdeviceptr total = new_total(work);
  void* pinned[kBuffers];
  CUdeviceptr device[kBuffers];
  CUevent free_again[kBuffers];
  for (int i = 0; i < kBuffers; ++i) {
    EXPECT_OK(cuMemAllocHost(&pinned[i], kBytes));
    device[i] = new_block(kBytes);
    EXPECT_OK(cuEventCreate(&free_again[i], CU_EVENT_DISABLE_TIMING));
  }
  uint64_t expected = 0;
  for (uint32_t round = 0; round < 6; ++round) {
    const uint32_t i = round % kBuffers;
    EXPECT_OK(cuEventSynchronize(free_again[i]));
    auto* words = static_cast<uint32_t*>(pinned[i]);
    for (size_t word = 0; word < kWords; ++word) expected += words[word] = round;
    EXPECT_OK(cuMemcpyHtoDAsync(device[i], pinned[i], kBytes, upload));
    after(work, upload);
    sum_words(work, device[i], kWords, total);
    EXPECT_OK(cuEventRecord(free_again[i], work));
  }
  EXPECT(read_total(work, total) == expected);
}

void graph_with_branches_again_and_again() {
  CUstream one = new_stream();
  CUstream two = new_stream();
  const CUdeviceptr left = new_block(kBytes);
  const CUdeviceptr right = new_block(kBytes);
  const CUdeviceptr total = new_total(one);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
  after(two, one);
  fill_words(one, left, kWords, 1);
  fill_words(two, right, kWords, 2);
  sum_words(two, right, kWords, total);
  sum_words(one, left, kWords, total);
  after(one, two);
  sum_words(one, right, kWords, total);
  EXPECT_OK(cuStreamEndCapture(one, &graph));
  EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
  EXPECT_OK(cuStreamSynchronize(one));
  for (CUstream stream : {one, two, one}) EXPECT_OK(cuGraphLaunch(exec, stream));
  EXPECT(read_total(one, total) == 3 * (sum_of_filled(kWords, 1) + 2 * sum_of_filled(kWords, 2)));
}

void stream_ordered_allocations() {
  CUstream one = new_stream();
  CUstream two = new_stream();
  const CUdeviceptr total = new_total(one);
  uint64_t expected = 0;
  for (uint32_t round = 0; round < 4; ++round) {
    CUdeviceptr block = 0;
    EXPECT_OK(cuMemAllocAsync(&block, kBytes, one));
    after(two, one);
    fill_words(two, block, kWords, round);
    after(one, two);
    sum_words(one, block, kWords, total);
    EXPECT_OK(cuMemFreeAsync(block, one));
    expected += sum_of_filled(kWords, round);
  }
  EXPECT(read_total(one, total) == expected);
}

// Set by a callback, awaited by the host in its own way.
struct Signal {
  std::mutex mutex;
  std::condition_variable changed;
  bool given = false;

  static void give(void* self) {
    auto* signal = static_cast<Signal*>(self);
    const std::lock_guard lock(signal->mutex);
    signal->given = true;
    signal->changed.notify_all();
  }
  void await() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return given; });
  }
};

void host_told_by_a_callback() {
  Pipeline pipeline;
  Signal written;
  pipeline.write(5);
  EXPECT_OK(cuLaunchHostFunc(pipeline.writer, Signal::give, &written));
  written.await();
  pipeline.read();
  pipeline.check();
}

void thread_takes_over_what_another_waited_for() {
  CUcontext context = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&context));
  Pipeline pipeline;
  std::thread first([&] {
    EXPECT_OK(cuCtxSetCurrent(context));
    pipeline.write(9);
    EXPECT_OK(cuStreamSynchronize(pipeline.writer));
  });
  first.join();
  pipeline.read();
  pipeline.check();
}

void stream_destroyed_with_work_in_flight() {
  Pipeline pipeline;
  pipeline.write(3);
  EXPECT_OK(cuStreamDestroy(pipeline.writer));
  EXPECT_OK(cuCtxSynchronize());
  pipeline.read();
  pipeline.check();
}

void memory_given_back_and_taken_again() {
  CUstream stream = new_stream();
  const CUdeviceptr total = new_total(stream);
  uint64_t expected = 0;
  for (uint32_t round = 0; round < 4; ++round) {
    const CUdeviceptr block = new_block(kBytes);
    CUstream writer = new_stream();
    fill_words(writer, block, kWords, round);
    after(stream, writer);
    sum_words(stream, block, kWords, total);
    EXPECT_OK(cuMemFree(block));
    EXPECT_OK(cuStreamDestroy(writer));
    expected += sum_of_filled(kWords, round);
  }
  EXPECT(read_total(stream, total) == expected);
}

void contexts_ordered_by_an_event() {
  Pipeline pipeline;
  CUcontext first = nullptr;
  CUcontext other = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&first));
  EXPECT_OK(cuCtxCreate(&other, nullptr, 0, 0));
  CUstream foreign = new_stream();
  EXPECT_OK(cuCtxSetCurrent(first));
  pipeline.write(4);
  CUevent written = nullptr;
  EXPECT_OK(cuEventCreate(&written, CU_EVENT_DISABLE_TIMING));
  EXPECT_OK(cuEventRecord(written, pipeline.writer));
  EXPECT_OK(cuStreamWaitEvent(foreign, written, 0));
  EXPECT_OK(cuMemsetD32Async(pipeline.block, 1, kWords, foreign));
  EXPECT_OK(cuStreamSynchronize(foreign));
  pipeline.read();
  pipeline.expected = kWords;
  pipeline.check();
}

void peer_writes_with_access() {
  Pipeline pipeline;
  CUcontext first = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&first));
  start(1);
  EXPECT_OK(cuCtxEnablePeerAccess(first, 0));
  CUstream foreign = new_stream();
  fill_words(foreign, pipeline.block, kWords, 6);
  EXPECT_OK(cuCtxSetCurrent(first));
  EXPECT_OK(cuStreamSynchronize(foreign));
  pipeline.read();
  pipeline.expected = sum_of_filled(kWords, 6);
  pipeline.check();
}

void columns_written_side_by_side() {
  constexpr size_t kRow = 512;
  constexpr size_t kRows = 4;
  const CUdeviceptr block = new_block(kRow * kRows);
  const CUdeviceptr total = new_total(CU_STREAM_LEGACY);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuMemsetD2D32Async(block, kRow, 1, kRow / 8, kRows, new_stream()));
  EXPECT_OK(cuMemsetD2D32Async(block + kRow / 2, kRow, 2, kRow / 8, kRows, new_stream()));
  EXPECT_OK(cuCtxSynchronize());
  sum_words(CU_STREAM_LEGACY, block, kRow * kRows / 4, total);
  EXPECT(read_total(CU_STREAM_LEGACY, total) == kRow / 8 * kRows * 3);
}

// What the stream did before is over for all of it, and what comes next is behind all of it.
void work_that_leaves_its_place() {
  const CUdeviceptr block = new_block(4 * kBytes);
  CUstream stream = new_stream();
  const CUdeviceptr total = new_total(stream);
  fill_words(stream, block, kWords, 1);
  fill_words_early(stream, block + kBytes, kWords, 2);
  copy_unordered(stream, {{block, block + 2 * kBytes}, {block + kBytes, block + 3 * kBytes}},
                 kBytes);
  sum_words(stream, block, 4 * kWords, total);
  fill_words_early(stream, new_block(kBytes), kWords, 3);
  EXPECT(read_total(stream, total) == 2 * (sum_of_filled(kWords, 1) + sum_of_filled(kWords, 2)));
  fill_words(stream, block, kWords, 4);
  EXPECT_OK(cuStreamSynchronize(stream));
  copy_unordered(stream, {{block, block + kBytes}}, kBytes, CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
  sum_words(stream, block, 2 * kWords, total);
  EXPECT(read_total(stream, total) ==
         2 * (sum_of_filled(kWords, 1) + sum_of_filled(kWords, 2) + sum_of_filled(kWords, 4)));
}

struct Correct {
  const char* name;
  void (*program)();
};

constexpr Correct kCorrect[] = {
    {"streams chained by events", streams_chained_by_events},
    {"reuse after the host waited", reuse_after_the_host_waited},
    {"reuse after polling", reuse_after_polling},
    {"reuse after an event of the whole context", reuse_after_an_event_of_the_whole_context},
    {"blocks of one stream need no event", blocks_of_one_stream_need_no_event},
    {"legacy stream orders blocking streams", legacy_stream_orders_blocking_streams},
    {"many streams add to one total", many_streams_add_to_one_total},
    {"double-buffered uploads", double_buffered_uploads},
    {"graph with branches again and again", graph_with_branches_again_and_again},
    {"stream-ordered allocations", stream_ordered_allocations},
    {"thread takes over what another waited for", thread_takes_over_what_another_waited_for},
    {"stream destroyed with work in flight", stream_destroyed_with_work_in_flight},
    {"memory given back and taken again", memory_given_back_and_taken_again},
    {"contexts ordered by an event", contexts_ordered_by_an_event},
    {"peer writes with access", peer_writes_with_access},
    {"columns written side by side", columns_written_side_by_side},
    {"work that leaves its place in the stream", work_that_leaves_its_place},
};

bool is_silent_under(const Correct& correct, const char* schedule) {
  return in_child(
      {{"SIMCUDA_RACES", "report"}, {"SIMCUDA_SCHEDULE", schedule}, {"SIMCUDA_DEVICES", "2"}}, [&] {
        start();
        correct.program();
        EXPECT(simcuda_findings(SIMCUDA_ALL_FINDINGS) == 0);
      });
}

struct Seeds {
  int first, step, end;
};

Seeds seeds() {
  const char* wanted = std::getenv("SIMCUDA_TEST_SEEDS");
  const char* share = std::getenv("TEST_SEEDS");
  int part = 1, parts = 1;
  if (share != nullptr) std::sscanf(share, "%d/%d", &part, &parts);
  REQUIRE((0 < part && part <= parts));
  const int end = wanted == nullptr ? 100 : std::atoi(wanted);
  REQUIRE(end > 0);
  return {(part - 1) % end, parts, end};
}

}  // namespace

TEST_CASE("correct programs are silent and right under every seed") {
  const Seeds of_this_build = seeds();
  for (const Correct& correct : kCorrect) {
    INFO(correct.name);
    for (int seed = of_this_build.first; seed < of_this_build.end; seed += of_this_build.step) {
      const std::string schedule = "seed:" + std::to_string(seed);
      INFO(schedule);
      REQUIRE(is_silent_under(correct, schedule.c_str()));
    }
  }
}

TEST_CASE("correct programs are silent and right when streams run as they like") {
  for (const Correct& correct : kCorrect) {
    INFO(correct.name);
    for (int round = 0; round < 10; ++round) REQUIRE(is_silent_under(correct, "threads"));
  }
}

TEST_CASE("a host that waits for a callback in its own way is served under a seed") {
  CHECK(is_silent_under({"host told by a callback", host_told_by_a_callback}, "seed:1"));
  CHECK(is_silent_under({"host told by a callback", host_told_by_a_callback}, "threads"));
}
