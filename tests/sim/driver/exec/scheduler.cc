// SPDX-License-Identifier: Apache-2.0
#include "exec/scheduler.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>
#include <vector>

#include "exec/engine.h"

namespace simcuda {
namespace {

// How long the host may be silent while work is pending.
constexpr std::chrono::milliseconds kSilence{200};

// SplitMix64 (public domain algorithm): small, and any seed is a good one.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t below(uint64_t limit) {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return (mixed ^ (mixed >> 31)) % limit;
  }

 private:
  uint64_t state_;
};

struct Scheduler {
  explicit Scheduler(uint64_t seed) : random(seed) {}

  Random random;
  std::vector<StreamRef> streams;  // that have work, in the order they got it
  bool running = false;            // some thread runs a piece
  bool has_reserve = false;        // the thread for a silent host exists
  uint64_t asked = 0;              // how often the host has shown itself
};

constinit Scheduler* g_scheduler = nullptr;

using Wanted = std::unordered_set<const Marker*>;

// Adds what a stream must run before the last wanted marker in it; false if that adds nothing.
bool add_needed(const Stream& stream, Wanted& wanted) {
  const auto last = std::find_if(stream.queue.rbegin(), stream.queue.rend(), [&](const Work& work) {
    return wanted.contains(work.done.get());
  });
  const size_t before = wanted.size();
  for (auto work = last; work != stream.queue.rend(); ++work) {
    wanted.insert(work->done.get());
    for (const MarkerRef& marker : work->after.pending) wanted.insert(marker.get());
  }
  return wanted.size() != before;
}

// What has to run before all of these markers are reached.
Wanted needed_for(const Scheduler& all, const std::vector<MarkerRef>& markers) {
  Wanted wanted;
  for (const MarkerRef& marker : markers) wanted.insert(marker.get());
  for (bool grows = true; grows;) {
    grows = false;
    for (const StreamRef& stream : all.streams) grows |= add_needed(*stream, wanted);
  }
  return wanted;
}

// Streams whose first piece may run now and is among the wanted ones, if any are named.
std::vector<size_t> ready_streams(Scheduler& all, const Wanted* wanted) {
  std::vector<size_t> ready;
  for (size_t i = 0; i < all.streams.size(); ++i) {
    Work& first = all.streams[i]->queue.front();
    const bool asked_for = wanted == nullptr || wanted->contains(first.done.get());
    if (asked_for && first.after.prune()) ready.push_back(i);
  }
  return ready;
}

// Leaves out what calls the program back: where the host only asks, it may hold what the callback
// wants. If there is nothing else it runs all the same, or asking again and again would not help.
void spare_callbacks(const Scheduler& all, std::vector<size_t>& ready) {
  std::vector<size_t> others;
  for (size_t index : ready) {
    if (!all.streams[index]->queue.front().calls_host) others.push_back(index);
  }
  if (!others.empty()) ready = std::move(others);
}

void run_first_of(Scheduler& all, size_t index, std::unique_lock<std::mutex>& lock) {
  const StreamRef stream = all.streams[index];
  Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  // Its successors wait for its marker, so the stream may stay in the list while it runs.
  if (stream->queue.empty()) {
    all.streams.erase(all.streams.begin() + static_cast<ptrdiff_t>(index));
  }
  all.running = true;
  run_work(std::move(work), lock);
  all.running = false;
  progress().notify_all();
}

// One of the pieces, drawn; false if there is none.
bool run_one(Scheduler& all, const std::vector<size_t>& ready, std::unique_lock<std::mutex>& lock) {
  if (ready.empty()) return false;
  run_first_of(all, ready[all.random.below(ready.size())], lock);
  return true;
}

// Runs what is pending when the host has been silent; ends when nothing is.
void stand_by() {
  Scheduler& all = *g_scheduler;
  std::unique_lock lock(exec_mutex());
  while (!all.streams.empty()) {
    const uint64_t before = all.asked;
    lock.unlock();
    std::this_thread::sleep_for(kSilence);
    lock.lock();
    while (before == all.asked && !all.running && run_one(all, ready_streams(all, nullptr), lock)) {
    }
  }
  all.has_reserve = false;
}

// Signals belong to the program's own threads.
void start_reserve(Scheduler& all) {
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  std::thread(stand_by).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  all.has_reserve = true;
}

}  // namespace

void start_scheduler(uint64_t seed) { g_scheduler = new Scheduler(seed); }

bool scheduled() { return g_scheduler != nullptr; }

void schedule(const StreamRef& stream) {
  Scheduler& all = *g_scheduler;
  ++all.asked;
  const bool known = std::find(all.streams.begin(), all.streams.end(), stream) != all.streams.end();
  if (!known) all.streams.push_back(stream);
  if (!all.has_reserve) start_reserve(all);
}

void run_until(const std::vector<MarkerRef>& markers, std::unique_lock<std::mutex>& lock) {
  Scheduler& all = *g_scheduler;
  ++all.asked;
  const bool only_needed = all.random.below(2) == 0;
  while (!std::all_of(markers.begin(), markers.end(), reached)) {
    // Another thread runs a piece: what comes next is drawn when that has ended.
    if (all.running) {
      progress().wait(lock);
      continue;
    }
    const Wanted wanted = only_needed ? needed_for(all, markers) : Wanted{};
    if (!run_one(all, ready_streams(all, only_needed ? &wanted : nullptr), lock)) {
      progress().wait(lock);
    }
  }
}

void run_some(std::unique_lock<std::mutex>& lock) {
  Scheduler& all = *g_scheduler;
  ++all.asked;
  for (uint64_t pieces = all.random.below(3); pieces > 0 && !all.running; --pieces) {
    std::vector<size_t> ready = ready_streams(all, nullptr);
    spare_callbacks(all, ready);
    run_one(all, ready, lock);
  }
}

}  // namespace simcuda
