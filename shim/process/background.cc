// SPDX-License-Identifier: Apache-2.0
#include "shim/process/background.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "allocator/base/os.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kGatherNs = 1 * kMs;          // after a ring: one round for a burst of frees
constexpr uint64_t kStopNs = 100 * kMs;          // stop_background() waits no longer
constexpr uint64_t kLongestPauseNs = 250 * kMs;  // alone() is checked at least this often
constexpr int kQuietRounds = 8;                  // without work; then the thread ends
constexpr uint64_t kQuietPauseNs = 1000 * kMs;   // or, if it is kept, pauses this long

enum class State : int { none, runs, cannot };
constinit std::atomic<State> state{State::none};
constinit std::atomic<int> rounds{0};        // rounds in progress, maybe inside a driver call
constinit std::atomic<bool> over{false};     // the process is ending, or is a forked child
constinit std::atomic<bool> resting{false};  // the thread is kept without work, and pauses longer
constinit std::atomic<uint32_t> bell{0};     // a futex; ring() changes it and wakes the thread
constexpr int kKinds = 4;  // device memory, the driver's pools, host memory, the recording
constinit std::atomic<const BackgroundWork*> works[kKinds]{};

// The kinds of work that were requested, in the order of their first request.
template <typename Visitor>
void for_each_work(Visitor visit) {
  for (const auto& each : works) {
    if (const BackgroundWork* work = each.load()) visit(*work);
  }
}

void add_work(const BackgroundWork* wanted) {
  for (auto& each : works) {
    const BackgroundWork* there = each.load();
    if (there == wanted) return;
    if (there == nullptr && (each.compare_exchange_strong(there, wanted) || there == wanted))
      return;
  }
}

void ring() {
  bell.fetch_add(1);
  alloc::os::futex_wake(reinterpret_cast<uint32_t*>(&bell), 1);
}

// True if there is more to do.
bool round() {
  rounds.fetch_add(1);
  bool more = false;
  for_each_work([&](const BackgroundWork& work) { more |= work.round(); });
  rounds.fetch_sub(1);
  return more;
}

bool kept() {
  bool any = false;
  for_each_work([&](const BackgroundWork& work) { any |= work.keeps_thread; });
  return any;
}

uint64_t pause_ns(bool quiet) {
  if (quiet) return kQuietPauseNs;
  uint64_t pause = kLongestPauseNs;
  for_each_work([&](const BackgroundWork& work) { pause = std::min(pause, work.pause_ns()); });
  return std::max(pause, 10 * kMs);
}

// Whether this thread may end. After the store, a free that needs a thread starts a new one. One
// more round handles what was freed before the store. It takes the lock of each pool: it sees a
// free that had the lock before it; a free that takes the lock after it sees State::none.
bool leave() {
  state.store(State::none);
  State expected = State::none;
  return !round() || !state.compare_exchange_strong(expected, State::runs);
}

void* run(void*) {
  const OwnThread counted;
  this_thread.background = true;
  for (int quiet = 0; !over.load() && (quiet < kQuietRounds || kept() || !leave());) {
    const uint32_t heard = bell.load();
    quiet = round() ? 0 : quiet + 1;
    if (alone()) {
      state.store(State::none);
      this_thread.background = false;
      become_thread_of_the_program();
      break;
    }
    resting.store(quiet >= kQuietRounds);
    alloc::os::futex_wait(reinterpret_cast<uint32_t*>(&bell), heard, pause_ns(resting.load()));
    resting.store(false);
    if (bell.load() == heard) continue;
    quiet = 0;
    if (!over.load()) alloc::os::sleep_ns(kGatherNs);
  }
  return nullptr;
}

bool start() {
  const int saved = errno;
  const int code = start_own_thread(run);
  errno = saved;
  if (code == 0) return true;
  state.store(State::cannot);
  log(config::LogLevel::kInfo,
      "the background thread could not be started: %s; the program's own calls do its work",
      strerrordesc_np(code));
  return false;
}

}  // namespace

bool attend(bool now, const BackgroundWork* wanted) {
  if (over.load()) return false;
  add_work(wanted);
  if (wanted->calls_driver) end_before_the_driver();
  State seen = state.load();
  if (seen == State::none && state.compare_exchange_strong(seen, State::runs)) return start();
  if (seen == State::cannot) return false;
  if (now || resting.load(std::memory_order_relaxed)) ring();
  return true;
}

bool in_background() { return this_thread.background; }

bool may_call() { return !this_thread.background || !over.load(); }

void stop_background() {
  over.store(true);
  if (state.load() == State::runs) ring();
  alloc::os::wait_until([] { return rounds.load() == 0; }, kStopNs);
}

void reset_background_after_fork() {
  forget_own_threads();
  over.store(true);
  rounds.store(0);
  state.store(State::cannot);
}

void forget_background_thread() {
  forget_own_threads();
  rounds.store(0);
  if (state.load() == State::runs) state.store(State::none);
  for (auto& each : works) each.store(nullptr);
}

}  // namespace cistern::shim
