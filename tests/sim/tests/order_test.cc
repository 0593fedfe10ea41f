// SPDX-License-Identifier: Apache-2.0
//
// The order oracle. Each case is a program and a pool above the driver at once: it tells which
// calls are the program's, and makes others for the pool. What a pool does wrong must be found
// under every schedule, and nothing must be said of what it does right.
#include <future>
#include <string>
#include <thread>

#include "device_code.h"
#include "tests/catch.h"
#include "tests/sim/include/simcuda/order.h"
#include "tests/sim/include/simcuda/watch.h"

namespace {

constexpr size_t kWords = 64, kBytes = kWords * sizeof(uint32_t);

// A call of the program's, around what the pool does in it.
class Told {
 public:
  explicit Told(const char* symbol, CUdeviceptr freed = 0) { simcuda_program_calls(symbol, freed); }
  ~Told() { simcuda_program_returns(CUDA_SUCCESS); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
};

// What the program has, and the pool's event. The work that fills `words` goes on.
struct Scene {
  CUstream one = new_stream(), two = new_stream();
  CUdeviceptr words = new_block(kBytes), block = new_block(kBytes);
  CUevent of_pool = nullptr;

  Scene() {
    EXPECT_OK(cuEventCreate(&of_pool, CU_EVENT_DISABLE_TIMING));
    simcuda_program_gets(block, kBytes, 0);
    fill_words(one, words, kWords, 1);
  }
  // The pool's free of the block puts off what the driver's would wait for.
  void free_at_once() const { const Told told("cuMemFree_v2", block); }
  // The work of the program's that comes next.
  void write_on(CUstream stream) const { fill_words(stream, words, kWords, 2); }
  void put_behind(CUstream stream) const { EXPECT_OK(cuStreamWaitEvent(stream, of_pool, 0)); }
};

void device_keeps_the_order_of_a_free() {
  const Scene at;
  at.free_at_once();
  EXPECT_OK(cuCtxRecordEvent(nullptr, at.of_pool));
  at.put_behind(at.two);
  at.write_on(at.two);
}

void free_waits() {
  const Scene at;
  {
    const Told told("cuMemFree_v2", at.block);
    EXPECT_OK(cuCtxSynchronize());
  }
  at.write_on(at.two);
}

void free_waits_in_vain() {
  const Scene at;
  at.free_at_once();
  at.write_on(at.two);
}

void event_is_recorded_before_the_last_work() {
  const Scene at;
  EXPECT_OK(cuCtxRecordEvent(nullptr, at.of_pool));
  fill_words(at.one, at.words, kWords, 3);
  at.free_at_once();
  at.put_behind(at.two);
  at.write_on(at.two);
}

void host_function_goes_on_behind_a_free() {
  const Scene at;
  EXPECT_OK(cuLaunchHostFunc(
      at.one, [](void*) {}, nullptr));
  at.free_at_once();
}

// Another thread's call that hands over a function of the host is not back during the free. Other
// work comes behind the function, in front of the free.
void free_beside_a_function_handed_over(const Scene& at) {
  CUcontext context = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&context));
  std::promise<void> has_it, freed;
  std::thread other([&] {
    EXPECT_OK(cuCtxSetCurrent(context));
    simcuda_program_submits("cuLaunchHostFunc");
    EXPECT_OK(cuLaunchHostFunc(
        at.one, [](void*) {}, nullptr));
    has_it.set_value();
    freed.get_future().wait();
    simcuda_program_returns(CUDA_SUCCESS);
  });
  has_it.get_future().wait();
  at.write_on(at.one);
  at.free_at_once();
  freed.set_value();
  other.join();
}

void host_function_is_being_handed_over_during_a_free() {
  const Scene at;
  free_beside_a_function_handed_over(at);
}

void host_function_goes_on_behind_a_free_beside_another() {
  const Scene at;
  EXPECT_OK(cuLaunchHostFunc(
      at.one, [](void*) {}, nullptr));
  free_beside_a_function_handed_over(at);
}

void copy_to_pinned_memory_goes_on_behind_a_free() {
  const Scene at;
  void* page = nullptr;
  EXPECT_OK(cuMemHostAlloc(&page, kBytes, 0));
  EXPECT_OK(cuMemcpyDtoHAsync(page, at.words, kBytes, at.one));
  at.free_at_once();
}

void stream_is_not_done_behind_a_free() {
  const Scene at;
  at.free_at_once();
  const Told told("cuStreamQuery");
  simcuda_program_sees_unfinished(nullptr, at.one);
}

// The memory is told of as the same, so its new owner comes after the free.
void another_thread_gets_the_memory() {
  const Scene at;
  fill_words(at.one, at.block, kWords, 1);
  at.free_at_once();
  CUcontext context = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&context));
  std::thread([&] {
    EXPECT_OK(cuCtxSetCurrent(context));
    simcuda_program_gets(at.block, kBytes, 0);
    fill_words(at.two, at.block, kWords, 2);
  }).join();
}

// This thread has the memory before the free that it comes after is back.
void memory_is_got_before_its_free_is_back() {
  const Scene at;
  std::promise<void> freed, taken;
  std::thread other([&] {
    const Told told("cuMemFree_v2", at.block);
    freed.set_value();
    taken.get_future().wait();
  });
  freed.get_future().wait();
  simcuda_program_gets(at.block, kBytes, 0);
  taken.set_value();
  other.join();
  at.write_on(at.one);
  at.free_at_once();
  EXPECT_OK(cuCtxRecordEvent(nullptr, at.of_pool));
  at.put_behind(at.two);
  fill_words(at.two, at.words, kWords, 3);
}

void another_thread_is_told() {
  const Scene at;
  at.free_at_once();
  simcuda_program_tells(&at);
  CUcontext context = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&context));
  std::thread([&] {
    EXPECT_OK(cuCtxSetCurrent(context));
    simcuda_program_hears(&at);
    at.write_on(at.two);
  }).join();
}

void program_waits_itself() {
  const Scene at;
  {
    const Told told("cuStreamSynchronize");
    EXPECT_OK(cuStreamSynchronize(at.one));
  }
  CUevent own = nullptr;
  EXPECT_OK(cuEventCreate(&own, CU_EVENT_DISABLE_TIMING));
  simcuda_program_makes(own);
  at.write_on(at.one);
  EXPECT_OK(cuEventRecord(own, at.one));
  EXPECT_OK(cuStreamWaitEvent(at.two, own, 0));
  at.write_on(at.two);
}

void stream_waits_for_what_is_not_owed() {
  const Scene at;
  EXPECT_OK(cuEventRecord(at.of_pool, at.one));
  at.put_behind(at.two);
}

void event_covers_work_behind_the_free() {
  const Scene at;
  {
    const Told told("cuMemFree_v2", at.block);
    EXPECT_OK(cuCtxSynchronize());
  }
  at.write_on(at.one);
  EXPECT_OK(cuCtxRecordEvent(nullptr, at.of_pool));
  at.put_behind(at.two);
}

void host_waits_in_a_submission() {
  const Scene at;
  EXPECT_OK(cuStreamSynchronize(at.one));
}

void free_waits_for_another_context() {
  const Scene at;
  CUcontext own = nullptr, other = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&own));
  EXPECT_OK(cuCtxCreate(&other, nullptr, 0, 0));
  const CUdeviceptr elsewhere = new_block(kBytes);
  simcuda_program_gets(elsewhere, kBytes, 0);
  const Told told("cuMemFree_v2", elsewhere);
  EXPECT_OK(cuCtxSetCurrent(own));
  EXPECT_OK(cuCtxSynchronize());
}

void unordered_work_stays_unordered() {
  const Scene at;
  at.write_on(at.two);
}

struct Case {
  const char* name;
  void (*program)();
  SimcudaFinding finding;  // all of them: none
};

constexpr Case kCases[] = {
    {"the device keeps the order", device_keeps_the_order_of_a_free, SIMCUDA_ALL_FINDINGS},
    {"the free waits", free_waits, SIMCUDA_ALL_FINDINGS},
    {"memory is got early", memory_is_got_before_its_free_is_back, SIMCUDA_ALL_FINDINGS},
    {"the program waits itself", program_waits_itself, SIMCUDA_ALL_FINDINGS},
    {"a call is not back", host_function_is_being_handed_over_during_a_free, SIMCUDA_ALL_FINDINGS},
    {"nothing is ordered, nor promised", unordered_work_stays_unordered, SIMCUDA_ALL_FINDINGS},
    {"nothing keeps the order", free_waits_in_vain, SIMCUDA_ORDER_LOST},
    {"the event is too early", event_is_recorded_before_the_last_work, SIMCUDA_ORDER_LOST},
    {"a host function", host_function_goes_on_behind_a_free, SIMCUDA_ORDER_LOST},
    {"of two host functions one", host_function_goes_on_behind_a_free_beside_another,
     SIMCUDA_ORDER_LOST},
    {"a copy to pinned memory", copy_to_pinned_memory_goes_on_behind_a_free, SIMCUDA_ORDER_LOST},
    {"a stream is asked", stream_is_not_done_behind_a_free, SIMCUDA_ORDER_LOST},
    {"another thread gets the memory", another_thread_gets_the_memory, SIMCUDA_ORDER_LOST},
    {"another thread is told", another_thread_is_told, SIMCUDA_ORDER_LOST},
    {"a stream waits in vain", stream_waits_for_what_is_not_owed, SIMCUDA_ORDER_ADDED},
    {"the event is too late", event_covers_work_behind_the_free, SIMCUDA_ORDER_ADDED},
    {"the host waits in vain", host_waits_in_a_submission, SIMCUDA_ORDER_ADDED},
    {"a free waits too long", free_waits_for_another_context, SIMCUDA_ORDER_ADDED},
};

// Under a seed nothing runs before somebody waits or asks.
bool is_judged_right(const Case& one, int seed) {
  const TemporaryFile findings;
  const std::string schedule = "seed:" + std::to_string(seed);
  return in_child({{"SIMCUDA_ORDER", "racy"},
                   {"SIMCUDA_RACES_FILE", findings.path()},
                   {"SIMCUDA_SCHEDULE", schedule.c_str()}},
                  [&] {
                    start();
                    one.program();
                    const uint64_t found = simcuda_findings(SIMCUDA_ALL_FINDINGS);
                    const bool wanted = one.finding != SIMCUDA_ALL_FINDINGS;
                    EXPECT(found == (wanted ? 1 : 0));
                    EXPECT(!wanted || simcuda_findings(one.finding) == 1);
                  });
}

}  // namespace

TEST_CASE("the oracle finds each order that is lost or added, and no other") {
  for (const Case& one : kCases) {
    INFO(one.name);
    for (int seed = 0; seed < 5; ++seed) {
      INFO(seed);
      CHECK(is_judged_right(one, seed));
    }
  }
}

TEST_CASE("kernels that meet end with each other, and where the program waits") {
  const TemporaryFile findings;
  CHECK(in_child({{"SIMCUDA_ORDER", "racy,meet"}, {"SIMCUDA_RACES_FILE", findings.path()}}, [] {
    start();
    const Scene at;
    at.write_on(at.two);  // ends the work of the first stream, with which it is not ordered
    EXPECT_OK(cuStreamSynchronize(at.one));
    at.write_on(at.two);
    const Told told("cuStreamSynchronize");
    EXPECT_OK(cuStreamSynchronize(at.two));
  }));
}
