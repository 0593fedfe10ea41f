// SPDX-License-Identifier: Apache-2.0
#include "exec/engine.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/gate.h"
#include "base/settings.h"
#include "exec/scheduler.h"
#include "watch/oracle.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

constexpr std::chrono::milliseconds kIdleLife{500};

// Leaked: workers and late frees outlive static destruction.
struct Engine {
  std::mutex mutex;
  std::condition_variable progress;
  std::atomic<uint64_t> unfinished{0};
};

Engine& engine() {
  static Engine& only = *new Engine;
  return only;
}

// `time_ns`: when, in the device's time. Caller holds the mutex.
void reach(Marker& marker, int64_t time_ns) {
  marker.time_ns = time_ns;
  marker.done.store(true, std::memory_order_release);
  engine().progress.notify_all();
}

// Takes the time its call or kernel is said to take, from when it could begin; returns when it was
// done. A kernel's time is the device's: where the machine's threads are late, the next one begins
// when it should have, so that a row of short kernels takes as long as it says.
int64_t perform(Work& work) {
  const auto time = static_cast<int64_t>(latency_ns(work.call) + work.takes_ns);
  const int64_t end = std::max(work.after.reached_ns, work.given_ns) + time;
  if (time != 0) advance_to_ns(end);
  if (judging()) meet_others(work);
  if (work.calls_host && keeping_clocks()) {
    // A callback is the host's own code: it may tell every thread that its stream came this far.
    const std::lock_guard lock(exec_mutex());
    host_learns(work.after.clock);
  }
  if (work.run && (g_watch.load() & kEnded) == 0)
    work.run();  // what is under way at the end is lost
  return work.takes_ns != 0 ? end : now_ns();
}

// The life of a stream's thread. It ends when the stream has been idle for a while.
void execute(const StreamRef& stream) {
  prctl(PR_SET_TIMERSLACK, 1);  // ns: work takes the time it says, not the system's 50 us more
  std::unique_lock lock(exec_mutex());
  while (true) {
    const bool more =
        stream->wake.wait_for(lock, kIdleLife, [&] { return !stream->queue.empty(); });
    if (!more) {
      stream->has_worker = false;
      return;
    }
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (settings().queue != 0) engine().progress.notify_all();
    engine().progress.wait(lock, [&] { return work.after.prune(); });
    run_work(std::move(work), lock);
  }
}

// Signals belong to the program's own threads.
void start_worker(const StreamRef& stream) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(execute, stream).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  stream->has_worker = true;
}

}  // namespace

std::mutex& exec_mutex() { return engine().mutex; }

std::condition_variable& progress() { return engine().progress; }

void run_work(Work work, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const int64_t time_ns = perform(work);
  lock.lock();
  reach(*work.done, time_ns);
  engine().unfinished.fetch_sub(1, std::memory_order_release);
  // What the work owns (buffers, parameters) may take long to destroy.
  lock.unlock();
  work = Work{};
  lock.lock();
}

void queue_work(const StreamRef& stream, Work work) {
  engine().unfinished.fetch_add(1, std::memory_order_relaxed);
  stream->queue.push_back(std::move(work));
  if (scheduled()) return schedule(stream);
  if (!stream->has_worker) start_worker(stream);
  stream->wake.notify_one();
}

// Under a seed no other thread would make room.
void await_room(const Stream& stream, std::unique_lock<std::mutex>& lock) {
  const size_t most = settings().queue;
  if (most == 0 || scheduled()) return;
  engine().progress.wait(lock, [&] { return stream.queue.size() < most; });
}

void begin_here() { engine().unfinished.fetch_add(1, std::memory_order_relaxed); }

void run_here(Work& work) {
  const int64_t time_ns = perform(work);
  const std::lock_guard lock(exec_mutex());
  reach(*work.done, time_ns);
  engine().unfinished.fetch_sub(1, std::memory_order_release);
}

void reach_now(Marker& marker) { reach(marker, now_ns()); }

void wait_for(Order order) {
  const auto all_reached = [&] {
    return std::all_of(order.pending.begin(), order.pending.end(), reached);
  };
  if (all_reached() && !keeping_clocks()) return;
  const NoCancellation none;
  std::unique_lock lock(exec_mutex());
  if (judging()) judge_host_wait(current_call(), order);
  if (scheduled()) {
    run_until(order.pending, lock);
  } else {
    engine().progress.wait(lock, all_reached);
  }
  host_learns(order.clock);
}

void wait_for(const MarkerRef& marker) {
  Order order;
  order.add(marker);
  wait_for(std::move(order));
}

bool has_passed(Order& order) {
  if (!order.prune()) return false;
  host_learns(order.clock);
  return true;
}

void host_asks() {
  if (!scheduled()) return;
  std::unique_lock lock(exec_mutex());
  run_some(lock);
}

bool everything_done() { return engine().unfinished.load(std::memory_order_acquire) == 0; }

}  // namespace simcuda
