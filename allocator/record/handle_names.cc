// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/handle_names.h"

#include "allocator/base/os.h"

namespace cistern::alloc {

void HandleNames::set(const void* handle, uint32_t name) {
  if (handle == nullptr) return;
  const LockGuard guard(mutex_);
  Place* places = places_.load(std::memory_order_relaxed);
  if (places == nullptr) {
    places = static_cast<Place*>(os::map(kPlaces * sizeof(Place), 4096));
    if (places == nullptr) return;
    places_.store(places, std::memory_order_release);
  }
  uint32_t i = first_place(handle);
  const void* there = places[i].handle.load(std::memory_order_relaxed);
  while (there != nullptr && there != handle) {
    i = (i + 1) % kPlaces;
    there = places[i].handle.load(std::memory_order_relaxed);
  }
  if (there == nullptr && taken_ == kMostHandles) return;
  places[i].name.store(name, std::memory_order_relaxed);
  if (there == handle) return;
  ++taken_;
  places[i].handle.store(handle, std::memory_order_release);
}

uint32_t HandleNames::of(const void* handle) const {
  const Place* places = places_.load(std::memory_order_acquire);
  if (handle == nullptr || places == nullptr) return 0;
  for (uint32_t i = first_place(handle);; i = (i + 1) % kPlaces) {
    const void* there = places[i].handle.load(std::memory_order_acquire);
    if (there == handle) return places[i].name.load(std::memory_order_relaxed);
    if (there == nullptr) return 0;
  }
}

}  // namespace cistern::alloc
