// SPDX-License-Identifier: Apache-2.0
#include "shim/process/background.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "tests/catch.h"

using namespace cistern::shim;

namespace {

std::atomic<int> g_begun{0};

void* run(void*) {
  const OwnThread counted;
  g_begun.fetch_add(1);
  return nullptr;
}

// How often the mask of a thread that blocks one signal was another one after it started a thread.
int masks_lost(int blocked, int other, int rounds) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, blocked);
  int lost = 0;
  for (int i = 0; i < rounds; ++i) {
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    start_own_thread(run);
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    const bool same = sigismember(&now, blocked) == 1 && sigismember(&now, other) == 0;
    lost += same ? 0 : 1;
  }
  return lost;
}

}  // namespace

TEST_CASE("threads that start one of Cistern's at once keep their own signal masks") {
  constexpr int kRounds = 500;
  std::atomic<int> lost{0};
  std::thread first([&] { lost += masks_lost(SIGUSR1, SIGUSR2, kRounds); });
  std::thread second([&] { lost += masks_lost(SIGUSR2, SIGUSR1, kRounds); });
  first.join();
  second.join();
  CHECK(lost == 0);
  while (g_begun.load() < 2 * kRounds) std::this_thread::yield();
}
