// SPDX-License-Identifier: Apache-2.0
// What a program held a second ago it finds again, and what it no longer uses goes back.
// By default: no setting says what stays idle. The argument names what happens meanwhile: work of
// the device, another device, captures, a second thread, or no call at all.

#include <atomic>

#include "idle_workplace.h"

namespace {

constexpr size_t kGiB = size_t{1} << 30;

std::vector<CUdeviceptr> many() {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(allocate({5 * kMiB})[0]);
  return blocks;
}

void say_held_at_most(int count) {
  live_until([=] { return traced().held() <= count; });
  std::printf("at most %d are held 1\n", count);
}

// A block of 1 GiB in each step, and nothing else; `works`: with work in flight, which nobody waits
// for, and which ends by itself.
void steps(bool works) {
  if (!works) test_clock::stop();
  for (int i = 0; i < 50; ++i) {
    CUdeviceptr block = 0;
    cuMemAlloc(&block, kGiB);
    works ? cuMemsetD8Async(block, 1, 4096, nullptr) : cuMemsetD8(block, 1, 4096);
    cuMemFree(block);
    live_through(/*ms=*/60, /*steps=*/1);
  }
  cuCtxSynchronize();
  test_clock::stop();
  live_through(/*ms=*/2000, /*steps=*/20);
  std::printf("two seconds later %d are held\n", traced().held());
  say_alone();
}

// Nothing within a second; then all but 64 MiB.
void second() {
  test_clock::stop();
  const auto blocks = many();
  free_all(blocks);
  const int before = traced().frees;
  live_through(/*ms=*/900, /*steps=*/9);
  std::printf("frees within a second: %d\n", traced().frees - before);
  say_held_at_most(12);
  say_alone();
}

// The memory was idle before work began that does not end.
void beside_work() {
  test_clock::stop();
  const auto blocks = many();
  free_all(blocks);
  live_through(/*ms=*/900, /*steps=*/18);
  CUdeviceptr other = 0;
  cuMemAlloc(&other, kMiB);
  std::atomic<bool> end{false};
  cuLaunchHostFunc(
      nullptr,
      [](void* flag) {
        while (!*static_cast<std::atomic<bool>*>(flag)) usleep(100);
      },
      &end);
  say_held_at_most(13);
  end = true;
  std::printf("waited %d\n", cuCtxSynchronize());
}

// Work that was handed over after the frees may keep memory that nobody had looked at before.
void before_work() {
  test_clock::stop();
  const CUdeviceptr other = allocate({kMiB})[0];
  free_all(many());
  cuMemsetD8Async(other, 1, 4096, nullptr);  // takes three seconds
  live_through(/*ms=*/5000, /*steps=*/50);
  say_held_at_most(13);
}

// A device with work that does not end, and another one whose memory goes back.
void two_devices() {
  test_clock::stop();
  use_device(1);
  CUstream stream;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  std::atomic<bool> end{false};
  cuLaunchHostFunc(
      stream,
      [](void* flag) {
        while (!*static_cast<std::atomic<bool>*>(flag)) usleep(100);
      },
      &end);
  use_device(0);
  const auto blocks = many();
  free_all(blocks);
  say_held_at_most(12);
  end = true;
  use_device(1);
  std::printf("waited %d\n", cuCtxSynchronize());
}

void capture() {
  CUstream stream;
  CUgraph graph = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  test_clock::stop();
  free_all(many());
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const int before = traced().frees;
  live_through(/*ms=*/5000, /*steps=*/50);
  std::printf("frees during the capture: %d\n", traced().frees - before);
  SAY(cuStreamEndCapture(stream, &graph));
  std::printf("a graph %d\n", graph != nullptr);
  say_held_at_most(12);
}

// Threads that take and free while memory goes back beside them.
void threads() {
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  std::atomic<int> errors{0};
  std::vector<std::thread> all;
  for (int t = 0; t < 8; ++t) {
    all.emplace_back([&, t] {
      cuCtxSetCurrent(context);
      for (int i = 0; i < 200; ++i) {
        std::vector<CUdeviceptr> blocks(4);
        for (CUdeviceptr& block : blocks) {
          errors += cuMemAlloc(&block, static_cast<size_t>(1 + (t + i) % 9) * 3 * kMiB) != 0;
          errors += cuMemsetD8Async(block, 1, kMiB, nullptr) != 0;
        }
        for (const CUdeviceptr block : blocks) errors += cuMemFree(block) != 0;
        test_clock::move_ms(5);
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  std::printf("errors %d\n", errors.load());
  live_until([] { return traced().held() <= 64 / 3; });
  std::printf("few are held 1\n");
}

// Without a call in the background, those of the program see to it.
void calls() {
  test_clock::stop();
  free_all(many());
  live_until([] {
    free_all(allocate({4096}));
    cuCtxSynchronize();
    return traced().held() <= 13;  // one of them for the small ones
  });
  std::printf("few are held 1\n");
}

// What was freed behind work becomes idle once that is waited for, and no free comes after it.
void late() {
  const auto blocks = many();
  for (const CUdeviceptr block : blocks) cuMemsetD8Async(block, 1, 4096, nullptr);
  free_all(blocks);
  cuCtxSynchronize();
  say_held_at_most(12);
  say_alone();
}

// The same without a wait.
void later() {
  const auto blocks = many();
  for (const CUdeviceptr block : blocks) cuMemsetD8Async(block, 1, 4096, nullptr);
  free_all(blocks);
  say_held_at_most(12);
}

// What is free is free, whoever is just returning it to the driver.
void told() {
  const auto free_bytes = [] {
    size_t bytes = 0, total = 0;
    cuMemGetInfo(&bytes, &total);
    return bytes;
  };
  const size_t all = free_bytes();
  int less = 0, more = 0;
  for (int round = 0; round < 3; ++round) {
    free_all(many());
    for (int i = 0; i < 300; ++i) {
      const size_t now = free_bytes();
      less += now < all;
      more += now > all;
      // The calls that return it take time; it is asked before, during and after them.
      test_clock::move_ms(5);
      usleep(200);
    }
  }
  std::printf("less was free %d times, more %d times\n", less, more);
}

void exits() {
  test_clock::stop();
  free_all(many());
  live_through(/*ms=*/1000, /*steps=*/10);
  test_clock::move_ms(500);  // all of it is due
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  count_tasks();
  use_device(0);
  if (way == "steps") steps(/*works=*/false);
  if (way == "steps_in_flight") steps(/*works=*/true);
  if (way == "second") second();
  if (way == "beside_work") beside_work();
  if (way == "before_work") before_work();
  if (way == "two_devices") two_devices();
  if (way == "capture") capture();
  if (way == "threads") threads();
  if (way == "calls") calls();
  if (way == "late") late();
  if (way == "later") later();
  if (way == "told") told();
  if (way == "exits") exits();
  return 0;
}
