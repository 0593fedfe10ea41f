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
  clean,      // memory that had become clean meanwhile
  returned,   // a new chunk of the usual size, after idle chunks were returned
  smaller,    // a smaller chunk: half as large, again and again
  exact,      // a driver allocation of just the request
  elsewhere,  // a block that the usual search does not reach, or that had to be waited for
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

// Who did work that can wait: a call of the program, or the background thread. Deferred work of
// frees is done by an allocation that misses, or by the free itself if there is no background
// thread.
enum class WorkedBy : uint8_t { call, background };
inline constexpr int kWorkedByKinds = 2;

// Kinds of memory that the program has from the driver itself, beside the pools.
enum class MemoryKind : uint8_t {
  direct,  // linear memory that no pool served; pitched memory
  array,
  stream_ordered,  // blocks of the driver's memory pools
  physical,        // virtual memory management
  managed,         // counted only: the cap does not include it
};
inline constexpr int kMemoryKinds = 5;

struct Ledger {
  // Requested bytes that the program holds. Small blocks are added in steps (LiveCount). With one
  // allocating thread the peak is exact. With several it may be off, for each thread, by 64 KiB or
  // one small block.
  alignas(128) Counter live, live_peak;
  // Something was allocated: raises the peak. `unpublished`: live bytes that `live` does not count
  // yet.
  void note_live(int64_t unpublished) {
    const auto total = static_cast<int64_t>(live.get()) + unpublished;
    if (total > static_cast<int64_t>(live_peak.get())) {
      live_peak.raise_to(static_cast<uint64_t>(total));
    }
  }
  // Bytes taken from the driver: live, idle, waiting and lost to rounding.
  alignas(128) Counter reserved, reserved_peak;

  Counter obtained, released;  // chunks taken and returned; obtained: also requests that took units
  Counter refused;             // obtain calls the driver refused
  Counter waits, wait_ns;      // bounded waits for earlier work
  Counter bound_gave_way;      // times the bound on waiting memory gave way: no work ended
  Counter shortages, out_of_memory;  // requests short of memory; those of them that failed
  Counter served_by[kSteps];         // shortages, by the step that ended them
  // Groups with more than one member, their members, and the bytes that were reserved for members
  // that did not come (chunk_pools/groups.h).
  Counter groups, group_members, group_room;
  Counter sizes_forgotten;           // times freed memory lost its size in a shortage (ReuseRule)
  Counter chunks;                    // now taken from the driver
  Counter unpooled;                  // requests that the settings kept out of the pools
  Counter unpooled_short;            // those that the pools served: no other memory was left
  Counter free_waits, free_wait_ns;  // synchronisations that the settings put before frees
  Counter lost;                      // chunks, and units, the driver refused to take back
  // Bytes the program freed in slabs that are known outside the process (SlabPool::mark_exported):
  // nothing may reuse them until their slab goes back to the driver.
  Counter quarantined, quarantined_peak;

  // The scratch cache: stream-ordered requests it served and did not, blocks it returned, and the
  // bytes it keeps.
  Counter scratch_hits, scratch_misses, scratch_released, scratch_bytes;

  // Bytes of idle chunks, as the last sweep of each context saw them. Then chunks that went back
  // because they were idle for long (FLAGS_free_idle_memory), and their bytes.
  Counter idle_chunks;
  Counter aged[kWorkedByKinds], aged_bytes[kWorkedByKinds];
  // Times that deferred work of frees was done (FLAGS_eager_delete_scope=false).
  Counter deferred_done[kWorkedByKinds];

  // Fills (allocator/chunk/fill.h): ranges filled, their bytes, and waits for them. Then blocks
  // that were handed out unfilled: because of a capture, because their kind of memory is not
  // filled, and because the driver refused.
  Counter fills, fill_bytes, fill_waits;
  Counter fills_skipped, fills_of_other_kind, fills_failed;

  // Physical units (allocator/expandable): how many there are now, how many were created and
  // released; requests that were served with moved units, and the number of moved units.
  Counter units, units_created, units_released;
  Counter remaps, units_remapped;

  // Arenas of graphs (allocator/graph_arena). graphs, graph_bytes: known names, and the sum of
  // their needs in bytes. arena_bytes, arena_peak: what the arenas take now, and took at most.
  // arenas_taken, arena_increments: arenas taken at their known size, and chunks that graphs took
  // beyond it. graphs_apart: runs that overlapped another run, and so got an arena of their own.
  // arenas_left: arenas left to blocks that outlived their graph.
  Counter graphs, graph_bytes;
  Counter arena_bytes, arena_peak;
  Counter arenas_taken, arena_increments;
  Counter graphs_apart, arenas_left;

  // A plan (allocator/plan_arena.h): its bytes; requests served at their place; requests whose
  // place was not free. Times it was entered, left because a request did not match, and followed to
  // its end.
  Counter plan_bytes, plan_served, plan_occupied;
  Counter plan_entered, plan_left, plan_periods;
  Counter plans_made;  // while the program ran

  // Grows each time that memory kept for reuse goes back to the driver.
  uint64_t releases() const { return released.get() + scratch_released.get(); }

  // By MemoryKind, in bytes. Counted only if a cap is set or a report is wanted.
  Counter taken[kMemoryKinds], taken_peak[kMemoryKinds];
  Counter refused_by_cap;  // calls of the program that the cap alone answered

  // The peak of live plus waiting bytes of one context. Frees measure it only while the waiting
  // bytes come near the bound. Then frees that waited because too many bytes were waiting, and the
  // time they took (WaitingMemory::hold_back).
  Counter live_and_waiting_peak;
  Counter held_back, held_back_ns;
  // The sizes in which chunks were taken: each size sets one of 64 bits, chosen by a hash.
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

  // A thread that reads both counts in the middle of a step sees the step twice or not at all. Only
  // peaks are read this way, and they may be a step off.
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
  // Live bytes that the Ledger does not count yet; as a signed number, negative if it counts too
  // many.
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
