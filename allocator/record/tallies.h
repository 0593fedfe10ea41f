// SPDX-License-Identifier: Apache-2.0
// Who holds memory: sums of allocations by call site and by range, as they were at the peak and as
// they are now. The same for the report while the program runs and for a recording that is read
// afterwards. Not thread-safe: the caller has a lock. Memory comes from the operating system; what
// finds no room there is counted in lost().
#pragma once

#include <cstdint>

#include "allocator/base/arena.h"
#include "allocator/base/keyed_table.h"
#include "allocator/record/event.h"

namespace cistern::alloc {

// Sums of one site, or one range, in one place.
struct Tally {
  uint64_t allocations, bytes;       // ever
  uint64_t live_blocks, live_bytes;  // now
  uint64_t peak_bytes;               // of those live when most was live in the place
  uint64_t temporary;     // freed before the next allocation of the thread that allocated them
  uint64_t within_phase;  // freed in the phase in which they were allocated, which was known
};

// Where memory is: on a device, or page-locked on the host.
inline constexpr uint32_t kPinnedPlace = 64;
inline constexpr uint32_t kPlaces = kPinnedPlace + 1;
constexpr uint32_t place_of(const Event& event) {
  if (event.memory == Memory::pinned) return kPinnedPlace;
  return event.device < kPinnedPlace ? event.device : kPinnedPlace - 1;
}

enum class TallyBy : uint8_t { site, range };

class Tallies {
 public:
  // `event.type` is allocated. A block that is still live at its address has gone unseen.
  void allocated(const Event& event);

  // `event.type` is freed; what is not known is ignored. The block as it was allocated goes to
  // `block` unless that is nullptr; false if there is none.
  bool freed(const Event& event, Event* block);

  // `event.type` is context_ended: what was live in event.context is gone, but for stream-ordered
  // memory.
  void context_ended(const Event& event);

  // The sums of a whole place.
  const Tally& total(uint32_t place) const;

  // visit(number, tally) for every site or range that allocated in the place, in no order; number 0
  // stands for those that are not known.
  template <typename Visitor>
  void for_each(uint32_t place, TallyBy by, Visitor visit) const;

  // visit(event) for every live block, in no order.
  template <typename Visitor>
  void for_each_live(Visitor visit) const;

  uint64_t lost() const;
};

}  // namespace cistern::alloc
