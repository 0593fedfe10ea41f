// SPDX-License-Identifier: Apache-2.0
// How threads wait for each other: a lock; counts of the threads that are inside a scope or hold
// something; and how long a call waits. Any thread; nothing allocates.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/os.h"

namespace cistern::alloc {

// A lock of four bytes: constant-initialised, one atomic exchange to take it and one to leave it. A
// thread that finds it taken tries for a moment, then sleeps in a futex. std::mutex would pull
// libstdc++ into the object and cannot be put back into a known state in a forked child. Not
// recursive.
class Mutex {
 public:
  void lock() {
    uint32_t expected = kFree;
    if (!word_.compare_exchange_strong(expected, kLocked, std::memory_order_acquire)) lock_slow();
  }

  void unlock() {
    if (word_.exchange(kFree, std::memory_order_release) == kContended) wake();
  }

  // Waits for `limit_ns` at most. False if the lock is still held, by another thread or by the code
  // that a signal handler interrupted.
  bool lock_within(uint64_t limit_ns) {
    return os::wait_until(
        [&] {
          uint32_t expected = kFree;
          return word_.compare_exchange_strong(expected, kLocked, std::memory_order_acquire);
        },
        limit_ns);
  }

  // For a forked child, where the thread that held the lock does not exist.
  void reset() { word_.store(kFree, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kFree = 0, kLocked = 1, kContended = 2;
  static constexpr int kSpins = 100;  // a critical section here is tens of nanoseconds

  [[gnu::noinline]] void lock_slow() {
    for (int i = 0; i < kSpins; ++i) {
      uint32_t expected = kFree;
      if (word_.load(std::memory_order_relaxed) == kFree &&
          word_.compare_exchange_weak(expected, kLocked, std::memory_order_acquire)) {
        return;
      }
      relax();
    }
    while (word_.exchange(kContended, std::memory_order_acquire) != kFree) {
      os::futex_wait(reinterpret_cast<uint32_t*>(&word_), kContended, 0);
    }
  }

  [[gnu::noinline]] void wake() { os::futex_wake(reinterpret_cast<uint32_t*>(&word_), 1); }

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::atomic<uint32_t> word_{kFree};
};

class LockGuard {
 public:
  explicit LockGuard(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~LockGuard() { mutex_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Mutex& mutex_;
};

// For the end of the process. A program may call exit() in a signal handler that interrupted the
// holder of the lock, or while the holder is a thread that will not run again.
class LockGuardAtExit {
 public:
  explicit LockGuardAtExit(Mutex& mutex) : mutex_(mutex), locked_(mutex.lock_within(kLimitNs)) {}
  ~LockGuardAtExit() {
    if (locked_) mutex_.unlock();
  }
  LockGuardAtExit(const LockGuardAtExit&) = delete;
  LockGuardAtExit& operator=(const LockGuardAtExit&) = delete;
  explicit operator bool() const { return locked_; }

 private:
  static constexpr uint64_t kLimitNs = 100'000'000;

  Mutex& mutex_;
  const bool locked_;
};

// The longest that a call of the program waits for other threads or for the driver, in nanoseconds.
// Pools and hooks share these values. A limit or pause that only one file uses is defined in that
// file.
struct Deadlines {
  // For actions that end by themselves, in about the time of one call.
  static constexpr uint64_t kMoment = 10'000'000;
  // For driver calls that other threads make.
  static constexpr uint64_t kOthersCalls = 1'000'000'000;
  // For a free by the driver on a busy device, including the work before it.
  static constexpr uint64_t kRelease = 2'000'000'000;
};

// Counts the threads inside a scope, so that others can see, or wait until, no thread is inside.
class CountedIn {
 public:
  explicit CountedIn(std::atomic<int>& threads) : threads_(threads) { threads_.fetch_add(1); }
  ~CountedIn() { threads_.fetch_sub(1); }
  CountedIn(const CountedIn&) = delete;
  CountedIn& operator=(const CountedIn&) = delete;

 private:
  std::atomic<int>& threads_;
};

// Counts the threads that hold memory that other threads look for. A waiting thread waits for those
// that held something when the wait began. It does not wait for later ones, since there may always
// be some.
//
// Each mover counts itself in one of two counters, the open one. A turn opens the other counter,
// and is made only once that counter is empty. So after three turns both counters have been empty
// at some time since the wait began.
class Movers {
 public:
  // The calling thread moves something for as long as this lives.
  class Moving {
   public:
    explicit Moving(Movers& movers) : counter_(movers.inside_[movers.turns_.load() % 2]) {
      counter_.fetch_add(1);
      movers.begun_.fetch_add(1);
    }
    ~Moving() { counter_.fetch_sub(1); }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;

   private:
    std::atomic<int>& counter_;
  };

  int now() const { return inside_[0].load() + inside_[1].load(); }
  uint64_t begun() const { return begun_.load(); }

  // Waits for the threads that hold something now, for `most_ns` at most. False if that was too
  // short.
  bool await(uint64_t most_ns) {
    const uint64_t start = turns_.load();
    return os::wait_until(
        [&] {
          if (inside_[0].load() == 0 && inside_[1].load() == 0) return true;
          turn();
          return turns_.load() - start >= 3;
        },
        most_ns);
  }

 private:
  void turn() {
    uint64_t turns = turns_.load();
    if (inside_[(turns + 1) % 2].load() == 0) turns_.compare_exchange_strong(turns, turns + 1);
  }

  std::atomic<int> inside_[2]{};
  std::atomic<uint64_t> turns_{0};
  std::atomic<uint64_t> begun_{0};
};

}  // namespace cistern::alloc
