// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/phases.h"

#include <algorithm>
#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

// How many falls to higher levels it takes until a landing is no longer waited for.
constexpr unsigned kForgotten = 16;

bool near(uint64_t live, uint64_t low) { return live <= low + low / 100; }

}  // namespace

// --- automatic phases ---

void Phases::Level::moved(uint64_t live) {
  top = std::max(top, live);
  recent_top = std::max(recent_top, live);
  if (live < low) low = top = live;  // a rise counts from there
}

// At a synchronisation point: whether the phase ends here.
bool Phases::Level::ends(uint64_t live) {
  bool end = top - low >= kRise && near(live, low);
  if (!end && recent_top - live >= kRise) {
    const bool higher = has_landing && !near(live, landing);
    end = has_landing && !higher && near(landing, live);
    if (!higher || ++others == kForgotten) {
      landing = live;
      has_landing = true;
      others = 0;
    }
    recent_top = live;
  }
  if (end) *this = {live, live, live, 0, 0, false};
  return end;
}

void Phases::begin_automatic(uint32_t name) {
  automatic_figures_ = figures_of(name);
  automatic_peak_ = 0;
  raise(tables_->figures[automatic_figures_], automatic_peak_);
  automatic_run_.store(new_run(automatic_figures_), std::memory_order_relaxed);
}

void Phases::name_automatic(uint32_t start, uint32_t automatic) {
  const LockGuard guard(mutex_);
  if (!make_room()) return;
  automatic_name_ = automatic;
  begin_automatic(start);
}

uint32_t Phases::synchronised() {
  if (source_.load(std::memory_order_relaxed) != Source::kAutomatic) return 0;
  const LockGuard guard(mutex_);
  if (tables_ == nullptr || !level_.ends(live_)) return 0;
  const uint32_t run = automatic_run_.load(std::memory_order_relaxed);
  ended(automatic_figures_, automatic_peak_);
  begin_automatic(automatic_name_);
  return run;
}

// --- phases of threads ---

Phases::Thread::Open* Phases::innermost(Thread& thread) const {
  const Source source = source_.load(std::memory_order_relaxed);
  for (unsigned i = thread.depth; i-- > 0;) {
    if (thread.open[i].source == source) return &thread.open[i];
  }
  return nullptr;
}

void Phases::show(Thread& thread) {
  const Thread::Open* open = innermost(thread);
  thread.run.store(open == nullptr ? 0 : open->run, std::memory_order_relaxed);
  show_graph(thread);
}

// --- graphs ---

const Phases::Thread::Open* Phases::outermost(const Thread& thread) const {
  const Source source = source_.load(std::memory_order_relaxed);
  const auto* end = thread.open + thread.depth;
  const auto* open =
      std::find_if(thread.open, end, [&](const auto& o) { return o.source == source; });
  return open == end ? nullptr : open;
}

void Phases::show_graph(Thread& thread) {
  const Thread::Open* open = outermost(thread);
  if (thread.graph_slot == 0 && open != nullptr) {
    const auto* free = std::find_if(graphs_, graphs_ + kMostGraphs,
                                    [](const auto& run) { return run.load() == 0; });
    if (free == graphs_ + kMostGraphs) return;
    thread.graph_slot = static_cast<uint32_t>(free - graphs_) + 1;
  }
  if (thread.graph_slot == 0) return;
  const uint32_t run = open == nullptr ? 0 : open->run;
  const uint64_t name = open == nullptr ? 0 : tables_->figures[open->figures].name;
  graphs_[thread.graph_slot - 1].store(run, std::memory_order_relaxed);
  thread.graph.store(uint64_t{run} << 32 | name, std::memory_order_relaxed);
  if (run == 0) thread.graph_slot = 0;
}

// What a thread ended before another one began is seen by that one as the program orders the two.
bool Phases::is_open(uint32_t run) const {
  if (run == 0) return false;
  if (source_.load(std::memory_order_relaxed) == Source::kAutomatic) {
    return run == automatic_run_.load(std::memory_order_relaxed);
  }
  return std::any_of(graphs_, graphs_ + kMostGraphs, [run](const auto& open) {
    return open.load(std::memory_order_relaxed) == run;
  });
}

// The other threads' are gone without an end.
void Phases::reset_after_fork(const Thread* own) {
  mutex_.reset();
  const unsigned kept = own == nullptr ? 0 : own->graph_slot;
  for (unsigned i = 0; i < kMostGraphs; ++i) {
    if (i + 1 != kept) graphs_[i].store(0, std::memory_order_relaxed);
  }
}

// --- begin and end ---

uint32_t Phases::begin(Thread& thread, Source source, uint32_t name, uint64_t key) {
  const LockGuard guard(mutex_);
  const Source before = source_.load(std::memory_order_relaxed);
  if (!make_room() || source < before) return 0;
  if (before == Source::kAutomatic) ended(automatic_figures_, automatic_peak_);
  source_.store(source, std::memory_order_relaxed);
  const bool marker = source == Source::kMarkers;
  if (thread.depth == kMostOpen || (marker && thread.markers_beyond != 0)) {
    if (marker) ++thread.markers_beyond;
    return 0;
  }
  const uint16_t figures = figures_of(name);
  const uint32_t run = new_run(figures);
  Thread::Open& open = thread.open[thread.depth++];
  open = {run, figures, source, key, 0};
  raise(tables_->figures[figures], open.peak);
  show(thread);
  return run;
}

uint32_t Phases::end_marker(Thread& thread) {
  const LockGuard guard(mutex_);
  if (thread.markers_beyond != 0) return --thread.markers_beyond, 0;
  for (unsigned i = thread.depth; i-- > 0;) {
    if (thread.open[i].source == Source::kMarkers) return close(thread, i);
  }
  return 0;
}

uint32_t Phases::end_range(Thread& thread, uint64_t key) {
  const LockGuard guard(mutex_);
  for (unsigned i = thread.depth; i-- > 0;) {
    if (thread.open[i].source == Source::kRanges && thread.open[i].key == key) {
      return close(thread, i);
    }
  }
  return 0;
}

uint32_t Phases::end_any(Thread& thread) {
  const LockGuard guard(mutex_);
  return thread.depth == 0 ? 0 : close(thread, thread.depth - 1);
}

// What was allocated in it was so in those around it, too.
uint32_t Phases::close(Thread& thread, unsigned index) {
  const Thread::Open open = thread.open[index];
  ended(open.figures, open.peak);
  for (unsigned i = index; i-- > 0;) {
    if (thread.open[i].source != open.source) continue;
    thread.open[i].peak = std::max(thread.open[i].peak, open.peak);
    uint64_t& peak = tables_->figures[thread.open[i].figures].peak_bytes;
    peak = std::max(peak, open.peak);
    break;
  }
  --thread.depth;
  std::memmove(thread.open + index, thread.open + index + 1,
               (thread.depth - index) * sizeof(Thread::Open));
  show(thread);
  return open.run;
}

// --- live bytes ---

void Phases::raise(Figures& figures, uint64_t& peak) const {
  peak = std::max(peak, live_);
  figures.peak_bytes = std::max(figures.peak_bytes, live_);
}

inline void Phases::count_allocated(Thread* thread, uint64_t bytes) {
  live_ += bytes;
  if (tables_ == nullptr) return;
  if (source_.load(std::memory_order_relaxed) == Source::kAutomatic) {
    level_.moved(live_);
    Figures& figures = tables_->figures[automatic_figures_];
    ++figures.allocations;
    raise(figures, automatic_peak_);
  } else if (Thread::Open* open = thread == nullptr ? nullptr : innermost(*thread)) {
    Figures& figures = tables_->figures[open->figures];
    ++figures.allocations;
    raise(figures, open->peak);
  }
}

inline void Phases::count_freed(uint64_t bytes) {
  live_ -= std::min(live_, bytes);  // what was allocated before phases were switched on
  level_.moved(live_);
}

void Phases::allocated(Thread* thread, uint64_t bytes) {
  const LockGuard guard(mutex_);
  count_allocated(thread, bytes);
}

void Phases::freed(uint64_t bytes) {
  const LockGuard guard(mutex_);
  count_freed(bytes);
}

void Phases::block_allocated(Thread* thread, Memory memory, uint64_t address, uint64_t bytes,
                             uint64_t context) {
  const LockGuard guard(mutex_);
  const uint64_t gone = blocks_.allocated(memory, address, bytes, context);
  if (gone != 0) [[unlikely]]
    count_freed(gone);
  count_allocated(thread, bytes);
}

bool Phases::block_freed(Memory memory, uint64_t address, LiveBlocks::Block* out) {
  const LockGuard guard(mutex_);
  if (!blocks_.freed(memory, address, out)) return false;
  count_freed(out->bytes);
  return true;
}

void Phases::block_not_freed(Thread* thread, const LiveBlocks::Block& block) {
  block_allocated(thread, static_cast<Memory>(block.memory), block.key, block.bytes, block.context);
}

void Phases::context_ended(uint64_t context) {
  const LockGuard guard(mutex_);
  if (const uint64_t gone = blocks_.context_ended(context); gone != 0) count_freed(gone);
}

// --- runs and names ---

bool Phases::make_room() {
  if (tables_ == nullptr) tables_ = static_cast<Tables*>(os::map(sizeof(Tables)));
  return tables_ != nullptr;
}

// Most programs have a handful of names, and few phases a second.
uint16_t Phases::figures_of(uint32_t name) {
  for (uint32_t i = 1; i <= names_; ++i) {
    if (tables_->figures[i].name == name) return static_cast<uint16_t>(i);
  }
  if (names_ == kMostNames) return kMostNames;
  tables_->figures[++names_].name = name;
  return static_cast<uint16_t>(names_);
}

uint32_t Phases::new_run(uint16_t figures) {
  const uint32_t run = runs_.load(std::memory_order_relaxed) + 1;
  if (run <= kMostRuns) tables_->of_run[run] = figures;
  ++tables_->figures[figures].runs;
  runs_.store(run, std::memory_order_release);
  return run;
}

void Phases::ended(uint16_t figures, uint64_t peak) {
  tables_->figures[figures].last_peak_bytes = peak;
}

uint32_t Phases::name_of(uint32_t run) {
  const LockGuard guard(mutex_);
  if (run == 0 || run > kMostRuns || run > runs_.load(std::memory_order_relaxed)) return 0;
  return tables_->figures[tables_->of_run[run]].name;
}

uint32_t Phases::names() {
  const LockGuard guard(mutex_);
  return names_;
}

Phases::Figures Phases::figures(uint32_t n) {
  const LockGuard guard(mutex_);
  return tables_->figures[n];
}

}  // namespace cistern::alloc
