// SPDX-License-Identifier: Apache-2.0
// Bytes and calls of one device, for reports and memory queries. The pools of the device's contexts
// write it; any thread reads it without a lock. Counts cover the whole process. Bytes are current
// values, except the peaks.
#pragma once

#include <atomic>
#include <cstdint>

namespace cistern::alloc {

// The steps that are tried when the driver, or the cap, refuses a chunk, in this order
// (shortage.h). The ledger counts which of them served the request, and the log names it.
enum class Step : uint8_t {
  clean,      // memory that had become clean by then
  returned,   // a new chunk as without a shortage, after idle ones were returned
  smaller,    // a smaller chunk: half as large, again and again
  exact,      // a driver allocation of just the request
  elsewhere,  // a block out of the way of the usual search, or waited for
  refused,    // nothing: the program gets the driver's code
};
inline constexpr int kSteps = 6;

inline constexpr const char* kStepNames[kSteps] = {"clean", "returned",  "smaller",
                                                   "exact", "elsewhere", "refused"};

class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  void sub(uint64_t n) { value_.fetch_sub(n, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }
  void set(uint64_t n) { value_.store(n, std::memory_order_relaxed); }
  void raise_to(uint64_t n) {
    uint64_t seen = get();
    while (seen < n && !value_.compare_exchange_weak(seen, n, std::memory_order_relaxed)) {
    }
  }
  // For a counter that only one thread at a time writes (under its pool's lock): no locked
  // instruction.
  [[gnu::always_inline]] void own_add(uint64_t n = 1) {
    value_.store(get() + n, std::memory_order_relaxed);
  }
  [[gnu::always_inline]] void own_sub(uint64_t n) {
    value_.store(get() - n, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> value_{0};
};

// Who did work that need not be done at once: a call of the program (of put-off work: an allocation
// that misses, or a free where there is no thread of ours), or the thread in the background.
enum class WorkedBy : uint8_t { call, background };
inline constexpr int kWorkedByKinds = 2;

// Kinds of memory that the program has from the driver itself, beside the pools.
enum class MemoryKind : uint8_t {
  direct,  // linear memory that no pool served, pitched memory
  array,
  stream_ordered,  // blocks of the driver's memory pools
  physical,        // virtual memory management
  managed,         // counted only: no cap holds for it
};
inline constexpr int kMemoryKinds = 5;

struct Ledger {
  // Bytes the program holds (as it asked for them). Small blocks are added in steps, see
  // LiveCount: with one allocating thread the peak is exact; with several it may be off by 64 KiB
  // or one small block for each.
  alignas(128) Counter live, live_peak;
  // Something was allocated; `unpublished` is what live does not know yet.
  void note_live(int64_t unpublished) {
    const auto total = static_cast<int64_t>(live.get()) + unpublished;
    if (total > static_cast<int64_t>(live_peak.get())) {
      live_peak.raise_to(static_cast<uint64_t>(total));
    }
  }
  // Bytes taken from the driver: live, idle, waiting and lost to rounding.
  alignas(128) Counter reserved, reserved_peak;

  Counter obtained, released;  // calls that took or returned a chunk; requests that took units
  Counter refused;             // obtain calls the driver refused
  Counter waits, wait_ns;      // bounded waits for earlier work
  Counter bound_gave_way;      // times more had to wait than may, because no work ended
  Counter shortages, out_of_memory;  // times everything idle was returned; failures passed on
  Counter served_by[kSteps];         // shortages by the step that ended them
  // Groups of blocks side by side that have more than one member, their members, and the bytes that
  // were kept for members which did not come (chunk_pools/groups.h).
  Counter groups, group_members, group_room;
  Counter sizes_forgotten;           // times freed memory served other sizes after all (ReuseRule)
  Counter chunks;                    // taken from the driver now
  Counter unpooled;                  // requests that the settings kept out of the pools
  Counter unpooled_short;            // such ones that the pools served: no other memory was left
  Counter free_waits, free_wait_ns;  // synchronisations that the settings put before frees
  Counter lost;                      // chunks, and units, the driver refused to take back
  // Bytes the program freed in slabs that are known outside the process (SlabPool::mark_exported):
  // nothing may reuse them until their slab goes back to the driver.
  Counter quarantined, quarantined_peak;

  // The scratch cache: stream-ordered requests it served and did not, blocks it returned, and the
  // bytes it keeps.
  Counter scratch_hits, scratch_misses, scratch_released, scratch_bytes;

  // Wholly idle chunks, as the last sweep of each pool saw them; and what went back because it was
  // idle for long (FLAGS_free_idle_memory).
  Counter idle_chunks;
  Counter aged[kWorkedByKinds], aged_bytes[kWorkedByKinds];
  // Times that put-off work of frees was done (FLAGS_eager_delete_scope=false).
  Counter deferred_done[kWorkedByKinds];

  // Fills of what is handed out (allocator/chunk/fill.h): ranges filled, their bytes, how often
  // that was waited for; and what was handed out without, because of a capture, because it is of a
  // kind that is not filled, or because the driver refused.
  Counter fills, fill_bytes, fill_waits;
  Counter fills_skipped, fills_of_other_kind, fills_failed;

  // Physical units (allocator/expandable): how many there are now; made and given back; requests
  // that were served with units from elsewhere, and how many those were.
  Counter units, units_created, units_released;
  Counter remaps, units_remapped;

  // Arenas of graphs (allocator/graph_arena): names of graphs known, and what all of them need
  // together, in bytes; what the arenas take, and took at most; how often one was taken at its
  // size, and chunks that graphs took beyond it; runs that overlapped another one and got an arena
  // of their own; arenas left to blocks that outlived their graph.
  Counter graphs, graph_bytes;
  Counter arena_bytes, arena_peak;
  Counter arenas_taken, arena_increments;
  Counter graphs_apart, arenas_left;

  // A plan (allocator/plan_arena.h): its bytes; requests served at their place, and those whose
  // place was not free; times it was entered, left at a request that was another one, and followed
  // to its end.
  Counter plan_bytes, plan_served, plan_occupied;
  Counter plan_entered, plan_left, plan_periods;
  Counter plans_made;  // while the program ran

  // Moves whenever something kept for reuse went back to the driver.
  uint64_t releases() const { return released.get() + scratch_released.get(); }

  // By MemoryKind, in bytes. Counted where a cap is set or a report is wanted.
  Counter taken[kMemoryKinds], taken_peak[kMemoryKinds];
  Counter refused_by_cap;  // calls of the program that the cap alone answered

  // The most that was live or waited for work in one context, looked at by frees while a good part
  // of the bound waits; frees that waited for work because too much did, and the time they took
  // (WaitingMemory::hold_back).
  Counter live_and_waiting_peak;
  Counter held_back, held_back_ns;
  // In how many sizes chunks were taken: one of 64 bits for each, by a hash.
  std::atomic<uint64_t> sizes_taken{0};
  void note_size_taken(uint64_t bytes) {
    constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;
    sizes_taken.fetch_or(uint64_t{1} << (bytes * kSpread >> 58), std::memory_order_relaxed);
  }
};

// The requested bytes that are live in one pool. It passes changes to the device's Ledger in steps
// of 64 KiB, so that threads of different pools do not contend for one counter; its peak is exact
// as long as only one pool allocates. Written under the pool's lock; any thread reads it.
class LiveCount {
 public:
  void init(Ledger* ledger) { ledger_ = ledger; }

  // A reader of both counts who comes between the two lines of a step has it twice or not at all:
  // peaks alone are read so, and may be a step off.
  void add(uint64_t bytes) {
    live_.own_add(bytes);
    const auto unknown = static_cast<int64_t>(unpublished());
    ledger_->note_live(unknown);
    if (unknown <= kStep) [[likely]]
      return;
    published_.own_add(static_cast<uint64_t>(unknown));
    ledger_->live.add(static_cast<uint64_t>(unknown));
  }
  void sub(uint64_t bytes) {
    live_.own_sub(bytes);
    const auto unknown = static_cast<int64_t>(unpublished());
    if (unknown >= -kStep) [[likely]]
      return;
    ledger_->live.add(static_cast<uint64_t>(unknown));
    published_.own_add(static_cast<uint64_t>(unknown));
  }

  uint64_t get() const { return live_.get(); }
  // How much of it the Ledger does not know yet (it may also know too many).
  uint64_t unpublished() const { return live_.get() - published_.get(); }

  void forget_all() {
    ledger_->live.sub(published_.get());
    live_.set(0);
    published_.set(0);
  }

  // More than this is unpublished only while a block of that size is being added.
  static constexpr int64_t kStep = 64 * 1024;

 private:
  Ledger* ledger_;
  Counter live_, published_;
};

}  // namespace cistern::alloc
