// SPDX-License-Identifier: Apache-2.0
// What the programs share that ask a driver for facts: what it does where its documentation says
// nothing and Cistern, or the simulated CUDA, had to choose. They judge nothing.
//
//   gpu_facts          names its groups of facts
//   gpu_facts GROUP    prints each fact of the group as a line of JSON, {"name": value}
//
// check.py runs each group without Cistern, in a process of its own: a group in which the driver
// fails or hangs keeps the facts that it has told, and spoils no other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "../preload/programs/driver_codes.h"
#include "../preload/programs/timed_code.h"
#include "limit.h"

namespace facts {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A call waits if it is not back after this, beside work that goes on.
inline constexpr milliseconds kPatience{150};
// Another thread has surely begun its call after this.
inline constexpr milliseconds kHeadStart{30};

[[gnu::format(printf, 2, 3)]] inline void fact(double value, const char* name, ...) {
  std::printf("{\"");
  va_list arguments;
  va_start(arguments, name);
  std::vprintf(name, arguments);
  va_end(arguments);
  std::printf("\": %.9g}\n", value);
  std::fflush(stdout);
}

template <typename F>
double microseconds(F&& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Of one of many, after a first one.
template <typename F>
double each(int count, F&& run) {
  run();
  return microseconds([&] {
           for (int i = 0; i < count; ++i) run();
         }) /
         count;
}

// A call by a thread of its own, which may wait for work.
class Beside {
 public:
  Beside(CUcontext context, std::function<CUresult()> call)
      : thread_([this, context, call = std::move(call)] {
          MUST(cuCtxSetCurrent(context));
          began_ = true;
          took_us_ = microseconds([&] { code_ = call(); });
          back_ = true;
        }) {
    while (!began_) std::this_thread::yield();
  }
  ~Beside() { join(); }

  bool back() const { return back_; }
  bool back_within(milliseconds patience) const {
    const auto end = Clock::now() + patience;
    while (!back_ && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    return back_;
  }
  CUresult join() {
    if (thread_.joinable()) thread_.join();
    return code_;
  }
  double took_us() const { return took_us_; }

 private:
  std::atomic<bool> began_{false}, back_{false};
  CUresult code_ = CUDA_SUCCESS;
  double took_us_ = 0;
  std::thread thread_;
};

// Whether a call waits for work that goes on: it is ended once that is known.
inline bool waits(CUcontext context, timed::Held& work, std::function<CUresult()> call,
                  double* took_us = nullptr) {
  Beside calling(context, std::move(call));
  const bool back = calling.back_within(kPatience);
  work.end();
  MUST(calling.join());
  if (took_us != nullptr) *took_us = calling.took_us();
  return !back;
}

// A function that an older driver or toolkit lacks; null.
template <typename F>
F driver_function(const char* name, int version) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult code =
      cuGetProcAddress(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  return code == CUDA_SUCCESS ? reinterpret_cast<F>(found) : nullptr;
}

using RecordContext = CUresult (*)(CUcontext, CUevent);
inline RecordContext record_context() {
  return driver_function<RecordContext>("cuCtxRecordEvent", 12050);
}

inline CUdeviceptr new_block(size_t bytes) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, bytes));
  return block;
}

inline CUevent new_event() {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

struct Group {
  const char* name;
  void (*run)(CUcontext context);  // the first device's primary one, which is current
};

// The whole of a program's main().
template <size_t count>
int run(const Group (&groups)[count], int argc, char** argv) {
  if (argc < 2) {
    for (const Group& group : groups) std::printf("%s\n", group.name);
    return 0;
  }
  end_in_time();
  for (const Group& group : groups) {
    if (std::strcmp(argv[1], group.name) != 0) continue;
    group.run(use_device(0));
    return 0;
  }
  std::fprintf(stderr, "no group %s\n", argv[1]);
  return 2;
}

}  // namespace facts
