// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include "tests/catch.h"

#include "allocator/base/os.h"
#include "tests/unit/test_clock.h"

namespace clock_test {

using namespace cistern::alloc;
using cistern::test::kMs;
using cistern::test::StoppedClock;
using cistern::test::until_someone_waits;
using cistern::test::wait_for_the_clock;

namespace {

constexpr uint64_t kHour = 3'600'000 * kMs;

// A thread of Cistern's own, which waits for a time.
class Own {
 public:
  template <typename Wait>
  explicit Own(Wait wait) {
    const uint64_t waits = test_clock_waits();
    thread_ = std::thread([this, wait] {
      wait_for_the_clock();
      wait();
      over_ = true;
    });
    until_someone_waits(waits);
  }
  bool over() const { return over_; }
  void join() { thread_.join(); }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a clock that was stopped stands until it is moved, and runs on from there") {
  uint64_t stood = 0;
  {
    const StoppedClock clock;
    stood = os::now_ns();
    std::this_thread::yield();
    CHECK(os::now_ns() == stood);
    clock.move_ns(kHour);
    CHECK(os::now_ns() == stood + kHour);
  }
  const uint64_t from_here = os::now_ns();
  CHECK(from_here >= stood + kHour);
  while (os::now_ns() == from_here) std::this_thread::yield();
  test_clock_move(kHour);
  CHECK(os::now_ns() > from_here + kHour);
}

TEST_CASE("a clock that stands may be moved by each look at it, until it runs again") {
  {
    const StoppedClock clock;
    const uint64_t start = os::now_ns();
    CHECK(os::now_ns() == start);
    StoppedClock::look_takes(3 * kMs);
    for (uint64_t looks = 0; looks < 4; ++looks) CHECK(os::now_ns() == start + looks * 3 * kMs);
    StoppedClock::look_takes(0);
    CHECK(os::now_ns() == start + 12 * kMs);
    CHECK(os::now_ns() == start + 12 * kMs);
    StoppedClock::look_takes(kHour);
  }
  const StoppedClock clock;
  const uint64_t again = os::now_ns();
  CHECK(os::now_ns() == again);
}

TEST_CASE("a thread of Cistern's own that sleeps goes on once the clock gets there, not before") {
  const StoppedClock clock;
  const uint64_t start = os::now_ns();
  Own own([] { os::sleep_ns(10 * kMs); });
  clock.move_ns(10 * kMs - 1);
  test_clock_settle();
  CHECK_FALSE(own.over());
  CHECK(os::now_ns() == start + 10 * kMs - 1);
  clock.move_ns(1);
  own.join();
  CHECK(own.over());
  CHECK(os::now_ns() == start + 10 * kMs);
}

TEST_CASE("a wait for a word ends by the clock, or when it is woken") {
  const StoppedClock clock;
  uint32_t word = 0;
  Own own([&] { os::futex_wait(&word, 0, kHour); });
  SECTION("by the clock") { clock.move_ns(kHour); }
  SECTION("let go, it still has to get there") {
    clock.move_ns(kHour - 1);
    test_clock_let_go();
  }
  SECTION("woken, the word as it was") {
    while (!own.over()) os::futex_wake(&word, 1);
  }
  SECTION("woken, the word another one") {
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    os::futex_wake(&word, 1);
  }
  own.join();
  CHECK(own.over());
}

TEST_CASE("a thread of the program moves the clock that stands as long as it waits") {
  const StoppedClock clock;
  const uint64_t start = os::now_ns();
  SECTION("asleep") {
    os::sleep_ns(3 * kMs);
    CHECK(os::now_ns() == start + 3 * kMs);
  }
  SECTION("for a word that nobody changes") {
    uint32_t word = 7;
    os::futex_wait(&word, 7, 2 * kMs);
    CHECK(os::now_ns() == start + 2 * kMs);
    os::futex_wait(&word, 8, kHour);
    CHECK(os::now_ns() == start + 2 * kMs);
  }
  SECTION("for a condition, to the end of its patience") {
    CHECK_FALSE(os::wait_until([] { return false; }, 5 * kMs));
    CHECK(os::now_ns() >= start + 5 * kMs);
    CHECK(os::now_ns() < start + 6 * kMs);
  }
}

TEST_CASE("the clock is settled when each thread of Cistern's own waits for a later time") {
  const StoppedClock clock;
  std::atomic<int> rounds{0};
  Own own([&] {
    for (int i = 0; i < 20; ++i) {
      os::sleep_ns(kMs);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // what it has to do takes a while
      ++rounds;
    }
  });
  for (int i = 0; i < 20; ++i) {
    test_clock_settle();
    CHECK(rounds == i);
    clock.move_ns(kMs);
  }
  own.join();
  test_clock_settle();
  CHECK(rounds == 20);
}

TEST_CASE("a device's work waits for the clock, and a call that takes time moves it") {
  const StoppedClock clock;
  const uint64_t start = os::now_ns();
  std::atomic<bool> done{false};
  std::thread device([&] {
    cistern_clock_reach(start + kHour);
    done = true;
  });
  cistern_clock_spend(kHour - 1);
  CHECK(os::now_ns() == start + kHour - 1);
  CHECK_FALSE(done);
  cistern_clock_spend(1);
  device.join();
  CHECK(done);
  Own own([] { cistern_clock_spend(kHour); });
  test_clock_settle();
  CHECK(os::now_ns() == start + kHour);
  clock.move_ns(kHour);
  own.join();
}

TEST_CASE("a forked child has the clock as it is, and none of the threads that wait") {
  const StoppedClock clock;
  Own own([] { os::sleep_ns(10 * kMs); });
  const uint64_t before = os::now_ns();
  const pid_t child = fork();
  if (child == 0) {
    test_clock_settle();
    const bool same = os::now_ns() == before;
    test_clock_move(kHour);
    test_clock_settle();
    _exit(same && os::now_ns() == before + kHour ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(os::now_ns() == before);
  clock.move_ns(10 * kMs);
  own.join();
}

}  // namespace clock_test
