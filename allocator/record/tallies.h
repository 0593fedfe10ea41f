// SPDX-License-Identifier: Apache-2.0
// Which call sites and ranges hold memory: sums of their allocations, at the peak and now. Used by
// the report while the program runs, and for recordings that are read afterwards. Not thread-safe:
// the caller holds a lock. Memory comes from the operating system with the first allocation. An
// allocation for which there is no room is counted only in lost().
//
// Each event takes constant time. So a new peak does not walk over the sums: it only gets a number.
// A sum stores its value at that peak before its first change after it.
#pragma once

#include <cstdint>

#include "allocator/base/records.h"
#include "allocator/record/event.h"

namespace cistern::alloc {

// Sums of one site, or one range, in one place.
struct Tally {
  uint64_t allocations, bytes;       // ever
  uint64_t live_blocks, live_bytes;  // now
  uint64_t peak_bytes;               // live bytes at the peak of the whole place
  uint64_t temporary;     // blocks freed before the next allocation of the thread that made them
  uint64_t within_phase;  // blocks freed in the phase in which they were allocated, if known
};

// Where memory is: on a device, or page-locked on the host.
inline constexpr uint32_t kPinnedPlace = 64;
inline constexpr uint32_t kPlaces = kPinnedPlace + 1;
constexpr uint32_t place_of(const Event& event) {
  if (event.memory == Memory::pinned) return kPinnedPlace;
  return event.device < kPinnedPlace ? event.device : kPinnedPlace - 1;
}

enum class TallyBy : uint8_t { site, range };

// The order of a list of sites or ranges: by live bytes at the peak of the place, live bytes at the
// end, temporary blocks, number of allocations, or bytes of all allocations.
enum class TallyOrder : uint8_t { peak, end, temporary, calls, bytes };
inline constexpr int kTallyOrders = 5;
constexpr uint64_t figure_of(const Tally& tally, TallyOrder order) {
  switch (order) {
    case TallyOrder::peak:
      return tally.peak_bytes;
    case TallyOrder::end:
      return tally.live_bytes;
    case TallyOrder::temporary:
      return tally.temporary;
    case TallyOrder::calls:
      return tally.allocations;
    case TallyOrder::bytes:
      return tally.bytes;
  }
  return 0;
}

// All zero bytes at the start; mappings stay for the life of the process.
class Tallies {
 public:
  // `event.type` is allocated. If an earlier block is still live at the address, its free was not
  // recorded: it ends now.
  void allocated(const Event& event);

  // `event.type` is freed; a block that is not known is ignored. The block as it was allocated goes
  // to `block` unless that is nullptr; false if there is none.
  bool freed(const Event& event, Event* block);

  // Takes the last freed() back: `block`, which it returned, is still live.
  void not_freed(const Event& block);

  // The block at event.address is gone without a free: it counts neither as temporary nor as within
  // a phase.
  void gone(const Event& event);

  // `event.type` is context_ended: all live blocks of event.context are gone, except stream-ordered
  // and physical memory. Looks at all live blocks. Returns the bytes that are gone.
  uint64_t context_ended(const Event& event);

  // The sums of a whole place.
  const Tally& total(uint32_t place) const { return places_[place].total; }

  // Calls visit(number, tally) for every site or range that allocated in the place, in no order.
  // Number 0 stands for allocations whose site or range is not known.
  template <typename Visitor>
  void for_each(uint32_t place, TallyBy by, Visitor visit) const {
    if (tables_ == nullptr) return;
    tables_->sums.for_each([&](const Sums* sums) {
      if (sums->place == &places_[place] && sums->by == by) visit(sums->number, up_to_date(*sums));
    });
  }

  // Calls visit(event) with the allocation of every live block, in no order.
  template <typename Visitor>
  void for_each_live(Visitor visit) const {
    if (tables_ == nullptr) return;
    tables_->blocks.for_each([&](const Block* block) { visit(event_of(*block)); });
  }

  uint64_t lost() const { return lost_; }

 private:
  struct Place {
    Tally total;
    uint64_t peaks;  // number of new peaks so far
  };

  struct Sums {
    Sums* next;
    uint64_t key;
    const Place* place;
    uint32_t number;
    TallyBy by;
    uint64_t peak;  // tally.peak_bytes holds for this peak of the place; see up_to_date()
    Tally tally;
  };

  struct Block;

  struct Thread {
    Thread* next;
    uint64_t key;       // the system's number
    const Block* last;  // its last allocation, while that is live
  };

  // One cache line: with many blocks, loading it is most of an event's time.
  struct Block {
    Block* next;
    uint64_t key;  // the address
    uint64_t bytes : 48;
    uint64_t device : 12;
    uint64_t memory : 4;
    uint64_t time_ns, stream, context;
    uint32_t thread, site, range, phase;
  };
  static_assert(sizeof(Block) == 64);

  struct Tables {
    KeyedTable<Block, 21> blocks;
    KeyedTable<Sums, 15> sums;
    KeyedTable<Thread, 10> threads;
  };

  static Tally up_to_date(const Sums& sums) {
    Tally tally = sums.tally;
    if (sums.peak != sums.place->peaks) tally.peak_bytes = tally.live_bytes;
    return tally;
  }

  // What an event changes.
  struct Changes {
    Sums* site;
    Sums* range;
    Place* place;
    Thread* thread;
    bool complete() const { return site != nullptr && range != nullptr && thread != nullptr; }
    template <typename Change>
    void each(Change change) const;
  };

  static Event event_of(const Block& block);
  bool set_up();
  Block* find(const Event& event) const;
  Sums* sums_of(const Place& place, uint32_t number, TallyBy by);
  Thread* thread_of(uint32_t number);
  Changes changes_of(const Block& block);
  void end(const Block& block, const Changes& changes);  // no longer live

  Tables* tables_ = nullptr;
  uint64_t lost_ = 0;
  Records<Block, os::kHugePage, os::kHugePage> block_records_;
  Records<Sums, size_t{1} << 16> sums_records_;
  Records<Thread, size_t{1} << 16> thread_records_;
  Place places_[kPlaces]{};
};

}  // namespace cistern::alloc
