// SPDX-License-Identifier: Apache-2.0
// Phases: one graph or iteration of a program. Which is in force, and how much memory each took.
// Where a phase begins and ends is said by the first of these that the process has:
//
// markers     the program's own calls, nested, for each thread
// ranges      named ranges that the user chose, for each thread; they may end in any order
// automatic   one for the process. It ends at a synchronisation point when live bytes are within
//             1 % of their minimum since the last end, after having risen by 16 MiB or more
//
// That minimum may be out of reach, as what a program loads at its start stays. So a low level at
// which live bytes arrive twice, falling by 16 MiB or more to a synchronisation point, is an end
// and the new minimum.
//
// A run of a phase has a number, from 1 on; figures are kept by name. The peak of a run is the most
// bytes that were live in the process at its begin and when a thread in it allocated.
//
// A graph, whose memory may be shared with others that run before and after it, is the outermost
// marker or range of a thread: what is nested belongs to it. An automatic phase is one only once
// two have ended: what a program does at its start is no graph, and the first end may be chance.
// Memory comes from the operating system and is bounded. One lock; a call takes it for tens of
// nanoseconds. Any thread; not to be called from a signal handler.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/mutex.h"
#include "allocator/record/live_blocks.h"

namespace cistern::alloc {

class Phases {
 public:
  static constexpr uint32_t kMostNames = 1024;    // further names share the figures of the last
  static constexpr uint32_t kMostRuns = 1 << 20;  // further runs have a number, and no name
  static constexpr unsigned kMostOpen = 64;       // of one thread; what is begun inside is counted
  static constexpr unsigned kMostGraphs = 256;    // open at a time; who begins more has no graph
  static constexpr uint64_t kRise = uint64_t{16} << 20;

  enum class Source : uint8_t { kAutomatic, kRanges, kMarkers };

  // What a thread is in. All zero at first; only to be handed to these functions.
  struct Thread {
    struct Open {
      uint32_t run;
      uint16_t figures;
      Source source;
      uint64_t key;
      uint64_t peak;
    };
    Open open[kMostOpen];
    uint32_t depth;
    uint32_t markers_beyond;  // begun and not ended, without room
    std::atomic<uint32_t> run;
    uint32_t graph_slot;          // of graphs_, from 1 on; 0: in no graph
    std::atomic<uint64_t> graph;  // run and name in one word, as any thread may end a range
  };

  struct Graph {
    uint32_t run, name;
  };

  struct Figures {
    uint32_t name;
    uint32_t runs;
    uint64_t allocations;
    uint64_t peak_bytes;
    uint64_t last_peak_bytes;  // of the run that ended last
  };

  // A number for each name: `automatic` for phases by live bytes, `start` for what comes before the
  // first end of one. Before all else.
  void name_automatic(uint32_t start, uint32_t automatic);

  // A marker, or a range of the user's choice. `key` tells ranges of a thread from each other and
  // is not 0. The number of the run; 0: nothing began, as another source counts or there is no
  // room.
  uint32_t begin(Thread& thread, Source source, uint32_t name, uint64_t key);
  // The innermost marker's, and that of this range. The number of the run that ended, or 0.
  uint32_t end_marker(Thread& thread);
  uint32_t end_range(Thread& thread, uint64_t key);
  // Of a thread that ends: one that is still open. The number of the run; 0: none was left.
  uint32_t end_any(Thread& thread);

  // `thread` may be null: it is in no marker or range.
  void allocated(Thread* thread, uint64_t bytes);
  void freed(uint64_t bytes);
  // The same, where nobody else knows how large the block is that is freed. block_freed() tells of
  // it, and false if it was not known; that did not happen after all with block_not_freed().
  void block_allocated(Thread* thread, Memory memory, uint64_t address, uint64_t bytes,
                       uint64_t context);
  bool block_freed(Memory memory, uint64_t address, LiveBlocks::Block* out);
  void block_not_freed(Thread* thread, const LiveBlocks::Block& block);
  void context_ended(uint64_t context);
  // The program waited for the device. The number of the automatic phase that ended here, or 0.
  uint32_t synchronised();

  // The run that is in force for a thread; 0: none. Takes no lock.
  uint32_t current(const Thread* thread) const {
    if (source_.load(std::memory_order_relaxed) == Source::kAutomatic) {
      return automatic_run_.load(std::memory_order_relaxed);
    }
    return thread == nullptr ? 0 : thread->run.load(std::memory_order_relaxed);
  }

  // The graph in which a thread is; run 0: none. Takes no lock.
  Graph graph(const Thread* thread) const {
    if (source_.load(std::memory_order_relaxed) == Source::kAutomatic) {
      const uint32_t run = automatic_run_.load(std::memory_order_relaxed);
      return run < kFirstGraph ? Graph{} : Graph{run, automatic_name_};
    }
    const uint64_t word = thread == nullptr ? 0 : thread->graph.load(std::memory_order_relaxed);
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)};
  }

  // Whether it is still the graph of some thread. Takes no lock; runs end meanwhile.
  bool is_open(uint32_t run) const;

  // Whether what is live tells where phases end; not once the program has said it. Takes no lock.
  bool by_live_bytes() const {
    return source_.load(std::memory_order_relaxed) == Source::kAutomatic;
  }

  // Runs so far are 1 to runs().
  uint32_t runs() const { return runs_.load(std::memory_order_acquire); }
  uint32_t name_of(uint32_t run);

  // Names so far are 1 to names(), in the order of their first use.
  uint32_t names();
  Figures figures(uint32_t n);

  // `own`: of the thread that is left, or null.
  void reset_after_fork(const Thread* own);

 private:
  // Run 1 is what comes before the first automatic end.
  static constexpr uint32_t kFirstGraph = 3;

  struct Tables {
    Figures figures[kMostNames + 1];  // [0] is not used
    uint16_t of_run[kMostRuns + 1];   // figures
  };

  // Live bytes as the automatic phases see them.
  struct Level {
    uint64_t low, top;    // since the last end
    uint64_t recent_top;  // since the last fall that was looked at
    uint64_t landing;     // where an earlier fall came to
    unsigned others;      // falls to higher levels since
    bool has_landing;

    void moved(uint64_t live);
    bool ends(uint64_t live);
  };

  bool make_room();
  void count_allocated(Thread* thread, uint64_t bytes);
  void count_freed(uint64_t bytes);
  uint16_t figures_of(uint32_t name);
  uint32_t new_run(uint16_t figures);
  void raise(Figures& figures, uint64_t& peak) const;
  void ended(uint16_t figures, uint64_t peak);
  void begin_automatic(uint32_t name);
  uint32_t close(Thread& thread, unsigned index);
  void show(Thread& thread);
  void show_graph(Thread& thread);
  Thread::Open* innermost(Thread& thread) const;
  const Thread::Open* outermost(const Thread& thread) const;

  Mutex mutex_;
  std::atomic<Source> source_{Source::kAutomatic};
  std::atomic<uint32_t> automatic_run_{0};
  std::atomic<uint32_t> runs_{0};
  std::atomic<uint32_t> graphs_[kMostGraphs]{};  // runs of threads; 0: free
  Tables* tables_ = nullptr;
  uint32_t names_ = 0;
  uint64_t live_ = 0;
  LiveBlocks blocks_;
  uint32_t automatic_name_ = 0;
  uint16_t automatic_figures_ = 0;
  uint64_t automatic_peak_ = 0;
  Level level_{};
};

}  // namespace cistern::alloc
