// SPDX-License-Identifier: Apache-2.0
#include "exec/engine.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <thread>

#include "base/clock.h"
#include "base/gate.h"

namespace simcuda {
namespace {

constexpr std::chrono::milliseconds kIdleLife{500};

// Leaked: workers and late frees outlive static destruction.
struct Engine {
  std::mutex mutex;
  std::condition_variable progress;  // some marker was reached
  std::atomic<uint64_t> unfinished{0};
};

Engine& engine() {
  static Engine& only = *new Engine;
  return only;
}

// Caller holds the mutex.
void reach(Marker& marker) {
  marker.time_ns = now_ns();
  marker.done.store(true, std::memory_order_release);
  engine().progress.notify_all();
}

void perform(Work& work) {
  sleep_ns(latency_ns(work.call));
  if (work.run) work.run();
}

void finish(Work& work, std::unique_lock<std::mutex>& lock) {
  reach(*work.done);
  engine().unfinished.fetch_sub(1, std::memory_order_release);
  // What the work owns (buffers, parameters) may take long to destroy.
  lock.unlock();
  work = Work{};
  lock.lock();
}

// The life of a stream's thread. It ends when the stream has been idle for a while.
void execute(const StreamRef& stream) {
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
    engine().progress.wait(lock, [&] { return prune(work.after); });
    lock.unlock();
    perform(work);
    lock.lock();
    finish(work, lock);
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

bool prune(Markers& markers) {
  std::erase_if(markers, [](const MarkerRef& marker) { return reached(marker); });
  return markers.empty();
}

std::mutex& exec_mutex() { return engine().mutex; }

void queue_work(const StreamRef& stream, Work work) {
  engine().unfinished.fetch_add(1, std::memory_order_relaxed);
  stream->queue.push_back(std::move(work));
  if (!stream->has_worker) start_worker(stream);
  stream->wake.notify_one();
}

void begin_here() { engine().unfinished.fetch_add(1, std::memory_order_relaxed); }

void run_here(Work& work) {
  perform(work);
  const std::lock_guard lock(exec_mutex());
  reach(*work.done);
  engine().unfinished.fetch_sub(1, std::memory_order_release);
}

void reach_now(Marker& marker) { reach(marker); }

void wait_for(const Markers& markers) {
  const auto all_reached = [&] { return std::all_of(markers.begin(), markers.end(), reached); };
  if (all_reached()) return;
  std::unique_lock lock(exec_mutex());
  engine().progress.wait(lock, all_reached);
}

bool everything_done() { return engine().unfinished.load(std::memory_order_acquire) == 0; }

}  // namespace simcuda
