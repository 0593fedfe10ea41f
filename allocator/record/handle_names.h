// SPDX-License-Identifier: Apache-2.0
// Names of objects whose handles come from elsewhere. Looking one up takes no lock. Any thread; not
// to be called from a signal handler. Bounded: an object without room has no name.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/mutex.h"

namespace cistern::alloc {

class HandleNames {
 public:
  static constexpr uint32_t kMostHandles = 1 << 14;

  // The handle stands for this name from now on, whatever it stood for.
  void set(const void* handle, uint32_t name);

  // 0: none.
  uint32_t of(const void* handle) const;

  void reset_after_fork() { mutex_.reset(); }

 private:
  // Places are taken from the handle's own on, and never left: handles come again.
  struct Place {
    std::atomic<const void*> handle;
    std::atomic<uint32_t> name;
  };
  static constexpr uint32_t kPlaces = 2 * kMostHandles;

  static uint32_t first_place(const void* handle) {
    return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(handle) * 0x9E3779B97F4A7C15u) >> 49);
  }

  Mutex mutex_;
  uint32_t taken_ = 0;
  std::atomic<Place*> places_{nullptr};
};

}  // namespace cistern::alloc
