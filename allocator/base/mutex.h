// SPDX-License-Identifier: Apache-2.0
// A lock of four bytes: constant-initialised, one atomic exchange to take it and one to leave it. A
// thread that finds it taken tries for a moment, then sleeps in a futex. std::mutex would pull
// libstdc++ into the object and cannot be put back into a known state in a forked child. Not
// recursive.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/os.h"

namespace cistern::alloc {

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

}  // namespace cistern::alloc
