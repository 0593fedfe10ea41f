// SPDX-License-Identifier: Apache-2.0
// Descriptors that a thread has in hand for a moment while another thread forks. The child inherits
// the descriptors and the thread's record of them, and closes them. For that, opening and recording
// a descriptor, or closing and forgetting it, must lie together before or after the fork. So each
// waits for the other, but at most kMostNs: a signal handler may call fork in the middle of what it
// waits for. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cistern::shim {

// From the first call on, forks wait, and each child calls this.
void watch_forks(void (*close)());

// For a scope no fork begins. Not within another one. No wait in it: a few calls of the kernel.
class NoForkNow {
 public:
  NoForkNow();
  ~NoForkNow();
  NoForkNow(const NoForkNow&) = delete;
  NoForkNow& operator=(const NoForkNow&) = delete;

  static constexpr uint64_t kMostNs = 100'000'000;
};

// For a scope the object is one that a child closes: T::close_in_child(). Of more than kMost at a
// time children know not all.
template <typename T>
class InHand {
 public:
  explicit InHand(T* object) {
    for (std::atomic<T*>& place : places) {
      T* none = nullptr;
      if (!place.compare_exchange_strong(none, object)) continue;
      place_ = &place;
      return;
    }
  }
  ~InHand() {
    if (place_ != nullptr) place_->store(nullptr);
  }
  InHand(const InHand&) = delete;
  InHand& operator=(const InHand&) = delete;

  static void close_all_in_child() {
    for (std::atomic<T*>& place : places) {
      if (T* object = place.exchange(nullptr); object != nullptr) object->close_in_child();
    }
  }

 private:
  static constexpr size_t kMost = 256;
  static inline constinit std::atomic<T*> places[kMost]{};
  std::atomic<T*>* place_ = nullptr;
};

}  // namespace cistern::shim
