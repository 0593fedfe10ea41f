// SPDX-License-Identifier: Apache-2.0
// Phases: a phase is one graph or iteration of a program. Knows which phase a thread is in, and how
// much memory each took. The first of these sources that the process has decides where phases begin
// and end:
//
// markers     the program's own calls, nested, for each thread
// ranges      named ranges that the user chose, for each thread; they may end in any order
// automatic   one phase at a time for the whole process. It ends at a synchronisation point if live
//             bytes have risen by 16 MiB or more since the last end, and are now within 1 % of
//             their minimum since then
//
// Live bytes may never reach that minimum again, because a program keeps what it loads at its
// start. So a phase also ends if live bytes fall by 16 MiB or more to a synchronisation point, and
// reach the same level there for the second time. That level is the new minimum.
//
// A run of a phase has a number, from 1 on; figures are kept by name. The peak of a run is the most
// bytes that were live in the process when it began, or when a thread in it allocated.
//
// A *graph* may share memory with graphs that run before and after it. It is the outermost marker
// or range of a thread; nested ones belong to it. Automatic phases are graphs only once two have
// ended, because the start of a program is no graph, and the first end may be chance. Memory comes
// from the operating system and is bounded. One lock; a call takes it for tens of nanoseconds. Any
// thread; not to be called from a signal handler.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "allocator/record/event.h"

namespace cistern::alloc {

// The live blocks and their sizes. Automatic phases need them for memory whose size no pool knows
// when it is freed. Zeroed memory is an empty object; not thread-safe. Memory comes from the
// operating system with the first block and is kept. A block for which there is no room is not
// recorded.
class LiveBlocks {
 public:
  struct Block {
    Block* next;
    uint64_t key;  // the address
    uint64_t bytes : 60;
    uint64_t memory : 4;
    uint64_t context;  // its handle
  };
  static_assert(sizeof(Block) == 32);

  // Adds a block. If an earlier block is still recorded at the address, its free was not seen:
  // replaces it, and returns its bytes. Otherwise 0.
  uint64_t allocated(Memory memory, uint64_t address, uint64_t bytes, uint64_t context) {
    Block* block = find(memory, address);
    if (block == nullptr) {
      block = set_up() ? records_.take() : nullptr;
      if (block == nullptr) return 0;
      *block = {.next = nullptr, .key = address, .bytes = 0, .memory = 0, .context = 0};
      table_->insert(block);
    }
    const uint64_t before = block->bytes;
    block->bytes = bytes & kMostBytes;
    block->memory = static_cast<uint64_t>(memory) & 0xF;
    block->context = context;
    return before;
  }

  // Removes a block and copies it to *out, except `next`. False if none is recorded there.
  bool freed(Memory memory, uint64_t address, Block* out) {
    Block* block = find(memory, address);
    if (block == nullptr) return false;
    table_->remove(block);
    *out = *block;
    records_.give_back(block);
    return true;
  }

  // Removes the blocks that end with this context. Returns their bytes. Looks at all blocks.
  uint64_t context_ended(uint64_t context) {
    uint64_t bytes = 0;
    if (table_ == nullptr) return bytes;
    Block* gone = table_->remove_all([=](const Block& block) {
      return block.context == context && ends_with_context(static_cast<Memory>(block.memory));
    });
    while (gone != nullptr) {
      Block* next = gone->next;
      bytes += gone->bytes;
      records_.give_back(gone);
      gone = next;
    }
    return bytes;
  }

 private:
  using Table = KeyedTable<Block, 20>;
  static constexpr uint64_t kMostBytes = (uint64_t{1} << 60) - 1;

  bool set_up() {
    if (table_ == nullptr) table_ = static_cast<Table*>(os::map_huge(sizeof(Table)));
    return table_ != nullptr;
  }

  Block* find(Memory memory, uint64_t address) const {
    if (table_ == nullptr) return nullptr;
    const KeySpace space = key_space_of(memory);
    return table_->find(address, [=](const Block& block) {
      return key_space_of(static_cast<Memory>(block.memory)) == space;
    });
  }

  Table* table_ = nullptr;
  Records<Block, os::kHugePage, os::kHugePage> records_;
};

class Phases {
 public:
  static constexpr uint32_t kMostNames = 1024;    // further names share the figures of the last
  static constexpr uint32_t kMostRuns = 1 << 20;  // further runs have a number but no name
  static constexpr unsigned kMostOpen = 64;       // per thread; further markers are only counted
  static constexpr unsigned kMostGraphs = 256;    // open at a time; further phases are no graphs
  static constexpr uint64_t kRise = uint64_t{16} << 20;

  enum class Source : uint8_t { kAutomatic, kRanges, kMarkers };

  // The open phases of a thread. Zeroed memory at first. Only the functions of Phases may use it.
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
    uint32_t markers_beyond;  // open markers for which there is no room
    std::atomic<uint32_t> run;
    uint32_t graph_slot;          // in graphs_, from 1 on; 0: in no graph
    std::atomic<uint64_t> graph;  // run and name in one word, because any thread may end a range
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

  // Sets the names of automatic phases: `start` before the first end, `automatic` after it. Call it
  // before all other functions.
  void name_automatic(uint32_t start, uint32_t automatic);

  // A marker or a chosen range begins. `key`, not 0, identifies a range among those of the thread.
  // Returns the number of the run; 0 if none began, because another source decides or there is no
  // room.
  uint32_t begin(Thread& thread, Source source, uint32_t name, uint64_t key);
  // end_marker(): ends the innermost marker. end_range(): ends the range with this key. Both return
  // the number of the run that ended, or 0.
  uint32_t end_marker(Thread& thread);
  uint32_t end_range(Thread& thread, uint64_t key);
  // For a thread that ends: ends one phase that is still open. Returns the number of its run; 0 if
  // none was left.
  uint32_t end_any(Thread& thread);

  // Memory was allocated or freed. `thread` may be null: it is in no marker or range.
  void allocated(Thread* thread, uint64_t bytes);
  void freed(uint64_t bytes);
  // The same for blocks whose size is not known when they are freed, so they are recorded here.
  // block_freed(): *out is the block; false if it was not recorded. block_not_freed(): the free did
  // not happen after all.
  void block_allocated(Thread* thread, Memory memory, uint64_t address, uint64_t bytes,
                       uint64_t context);
  bool block_freed(Memory memory, uint64_t address, LiveBlocks::Block* out);
  void block_not_freed(Thread* thread, const LiveBlocks::Block& block);
  void context_ended(uint64_t context);
  // The program waited for the device. The number of the automatic phase that ended here, or 0.
  uint32_t synchronised();

  // The run that a thread is in; 0: none. Takes no lock.
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

  // Whether `run` is still the graph of a thread. Takes no lock, so the run may end meanwhile.
  bool is_open(uint32_t run) const;

  // Whether phases are automatic, so that live bytes must be counted. Takes no lock.
  bool by_live_bytes() const {
    return source_.load(std::memory_order_relaxed) == Source::kAutomatic;
  }

  // Runs so far are 1 to runs().
  uint32_t runs() const { return runs_.load(std::memory_order_acquire); }
  uint32_t name_of(uint32_t run);

  // Names so far are 1 to names(), in the order of their first use.
  uint32_t names();
  Figures figures(uint32_t n);

  // `own`: the phases of the forking thread, the only one left; or null.
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
    uint64_t landing;     // the level at which an earlier fall ended
    unsigned others;      // falls to higher levels since then
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
