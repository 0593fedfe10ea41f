// SPDX-License-Identifier: Apache-2.0
// Plans are made for the threads of two devices while their requests change and kernels run.
//
//   planned_threads THREADS     half of them on each device
//
// Each thread repeats requests of its own: its shape. On each device two threads, one after the
// other, change to a new shape, which no thread had. Then they come back, one after the other. Then
// one thread ends and another begins with its shape. The same happens again, but with a new shape.
// Each block is freed while a kernel may still write to it. Device 1 always has other work in
// flight, unless the machine is slow.
//
// This waits until the log tells of a plan of each device. After each change to a new shape by a
// thread that follows its plan, it waits for another one. A thread that comes back may find its
// former plan, so nothing waits for that. Blocks are checked: filled.h.
#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "../timed_code.h"
#include "../watch_time.h"
#include "filled.h"

namespace {

constexpr int kDevices = 2, kChanging = 2;
constexpr long kSteps = 6;           // a thread enters a new plan within two
constexpr double kBetweenMib = 0.5;  // plans of device 0 take less, those of device 1 more

// A thread begins a step only if no other one is behind it. So each makes its share of the
// requests, however the machine shares out its processors.
class Turns {
 public:
  explicit Turns(size_t threads) : steps_(threads) {}
  bool may_step(size_t thread) const { return steps_[thread] <= slowest(); }
  void stepped(size_t thread) { ++steps_[thread]; }
  void end(size_t thread) { steps_[thread] = LONG_MAX; }
  void begin(size_t thread) { steps_[thread] = slowest(); }
  long slowest() const {
    long least = LONG_MAX;
    for (const std::atomic<long>& steps : steps_) least = std::min(least, steps.load());
    return least;
  }

 private:
  std::vector<std::atomic<long>> steps_;
};

struct Device {
  int number;
  Turns turns;
  timed::Worker worker{use_device(number)};

  int plans() const { return number == 0 ? plans_told(0, kBetweenMib) : plans_told(kBetweenMib); }
  // No two requests of a device's shapes are of one size.
  size_t bytes_of(int shape, int request) const {
    const auto nth = static_cast<size_t>(20 * shape + request);
    return number == 0 ? 1024 + 8 * nth : (256 + nth) * 1024;
  }
};

class Repeating {
 public:
  Repeating(Device* device, size_t thread, int shape)
      : device_(*device), own_(thread), shape_(shape), thread_([this] { run(); }) {}
  ~Repeating() {
    over_ = true;
    thread_.join();
  }
  void change(int shape) { shape_ = shape; }

 private:
  // Layers forward, with a workspace each, and backward.
  void step(int shape) const {
    std::vector<Block> kept;
    for (int i = 0; i < 6 + shape % 4; ++i) {
      const Block workspace = get(device_.bytes_of(shape, 2 * i), stream_);
      kept.push_back(get(device_.bytes_of(shape, 2 * i + 1), stream_));
      free_in_use(workspace);
    }
    for (; !kept.empty(); kept.pop_back()) free_in_use(kept.back());
  }
  void free_in_use(const Block& block) const {
    const uint32_t us = block.number % 4 == 0 ? block.number * 37 % 101 : 0;
    expect(cuStreamSynchronize(stream_));
    check(block);
    const timed::Worker& worker = device_.worker;
    expect(timed::fill_words(worker.kernels, worker.stream, block.address, 64, 1, us));
    expect(cuMemFree(block.address));
  }
  void run() {
    device_.worker.use();
    stream_ = timed::new_stream();
    for (; !over_; device_.turns.stepped(own_)) {
      while (!device_.turns.may_step(own_)) usleep(200);
      step(shape_);
    }
    device_.turns.end(own_);
    expect(cuStreamDestroy(stream_));
  }

  Device& device_;
  const size_t own_;
  std::atomic<int> shape_;
  std::atomic<bool> over_{false};
  CUstream stream_ = nullptr;
  std::thread thread_;
};

// Makes one request of a new size in each step. So the requests of all threads together never
// repeat, and each plan is one of threads. No plan waits for this thread: it makes few requests.
void repeat_nothing(Device* device, size_t own, const std::atomic<bool>* over) {
  device->worker.use();
  const CUstream streams[] = {timed::new_stream(), timed::new_stream()};
  const Block words = get(4096, streams[0]);
  expect(cuCtxSynchronize());
  size_t bytes = 8192;
  for (size_t i = 0; !*over; ++i) {
    if (device->number == 0) {
      usleep(100);
    } else {
      const CUdeviceptr half = words.address + i % 2 * 2048;
      expect(timed::fill_words(device->worker.kernels, streams[i % 2], half, 64, 1, 100));
      expect(cuStreamSynchronize(streams[(i + 1) % 2]));
    }
    if (!device->turns.may_step(own)) continue;
    give_back(get(bytes += 4));
    device->turns.stepped(own);
  }
  for (const CUstream stream : streams) expect(cuStreamSynchronize(stream));
  expect(cuMemFree(words.address));
}

struct Program {
  const int each;  // threads of a device; each begins with the shape of its number
  Device devices[kDevices] = {{0, Turns(each + 1u)}, {1, Turns(each + 1u)}};
  std::map<int, Repeating> threads[kDevices]{};
  int new_shape = each;

  void begin(int thread, int shape) {
    for (Device& device : devices)
      threads[device.number].try_emplace(thread, &device, thread, shape);
  }
  void change(int thread, int shape) {
    for (auto& some : threads) some.at(thread).change(shape);
  }
  void replace(int thread, int shape) {
    for (auto& some : threads) some.erase(thread);
    for (Device& device : devices) device.turns.begin(static_cast<size_t>(thread));
    begin(thread, shape);
  }
  // Each thread makes kSteps more.
  void await_steps() {
    for (Device& device : devices) {
      const long end = device.turns.slowest() + kSteps;
      g_wrong += !comes_true([&] { return device.turns.slowest() >= end; });
    }
  }
  // The event makes a plan necessary on each device. Each thread then begins to follow it: one that
  // followed none would wait for many requests until its change leads to another plan.
  template <typename Event>
  void await_plans(Event event) {
    const int before[] = {devices[0].plans(), devices[1].plans()};
    event();
    for (Device& device : devices) {
      const auto made = [&] { return device.plans() > before[device.number]; };
      g_wrong += before[0] != INT_MAX && !comes_true(made);
    }
    await_steps();
  }
  void run() {
    await_plans([&] {
      for (int i = 0; i < each; ++i) begin(i, i);
    });
    for (int i = 0; i < kChanging; ++i) await_plans([&] { change(i, new_shape++); });
    for (int i = 0; i < kChanging; ++i) {
      change(i, i);
      await_steps();
    }
    replace(0, 0);
    await_steps();
    replace(1, new_shape++);
    await_steps();
  }
};

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  end_if_it_hangs();
  Program program{std::atoi(words[1]) / kDevices};
  std::atomic<bool> over{false};
  std::vector<std::thread> restless;
  for (Device& device : program.devices)
    restless.emplace_back(repeat_nothing, &device, program.each, &over);
  program.run();
  for (auto& some : program.threads) some.clear();
  over = true;
  for (std::thread& thread : restless) thread.join();
  std::printf("wrong: %d\n", g_wrong.load());
  return g_wrong != 0;
}
