// SPDX-License-Identifier: Apache-2.0
#include "shim/nvtx/ranges.h"

#include <pthread.h>

#include <atomic>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "allocator/record/names.h"
#include "config/text.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

using alloc::Phases;

constinit Phases the_phases{};

// The result of the match, kept for each name. Demand-paged: few names take few pages.
enum : uint8_t { kUnknown, kMatches, kDiffers };
constinit std::atomic<uint8_t> matches[alloc::Names::kMostNames + 1]{};

// An automatic phase that begins when another one ends gets no "began" line: the other's "ended"
// line stands for both.
void tell(const char* what, uint32_t run) {
  if (run == 0 || !log_enabled(config::LogLevel::kDebug)) return;
  log(config::LogLevel::kDebug, "phase %u %s: %s", run, what,
      names().text(the_phases.name_of(run)));
}

// Whether CISTERN_GRAPH_RANGE matches this name of a range.
bool is_phase(uint32_t name) {
  if (!phases_on() || name == 0 || !policy().graph_range.set) return false;
  const uint8_t known = matches[name].load(std::memory_order_relaxed);
  if (known != kUnknown) return known == kMatches;
  const bool found = config::matches_glob(policy().graph_range.value, names().text(name));
  matches[name].store(found ? kMatches : kDiffers, std::memory_order_relaxed);
  return found;
}

// `key` is as in Phases::begin().
void phase_begins(Phases::Thread& thread, Phases::Source source, uint32_t name, uint64_t key) {
  tell("began", the_phases.begin(thread, source, name, key));
}

}  // namespace

void switch_phases_on(bool automatic) {
  if (phases_on()) return;
  if (automatic) the_phases.name_automatic(names().number("(start)"), names().number("(phase)"));
  phases_switched_on.store(true, std::memory_order_relaxed);
}

alloc::Phases& phases() { return the_phases; }

void phase_freed(uint64_t bytes) { the_phases.freed(bytes); }
uint32_t phase_count() { return the_phases.runs(); }
uint32_t phase_name(uint32_t run) { return the_phases.name_of(run); }
uint32_t phase_names() { return the_phases.names(); }
PhaseFigures phase_figures(uint32_t n) { return the_phases.figures(n); }

bool graph_is_open(uint32_t run) { return phases_on() && the_phases.is_open(run); }

void synchronisation_point() { tell("ended", the_phases.synchronised()); }

// Lock order: the list, a thread, then the tree, the names and the phases. `phases` is guarded by
// the lock of the phases.
struct ThreadRanges {
  alloc::Mutex mutex;
  alloc::RangeStack stack;
  uint64_t phase_keys;  // given so far
  uint32_t* shown;      // this_thread.range of the thread
  Phases::Thread phases;
  ThreadRanges *previous, *next;
};

namespace {

using Entry = alloc::RangeStack::Entry;

constinit alloc::RangeTree tree{};
constinit alloc::Mutex list_mutex{};
constinit ThreadRanges* list = nullptr;

constinit pthread_key_t end_of_thread{};
constinit pthread_once_t key_made = PTHREAD_ONCE_INIT;
constinit bool have_key = false;

// Caller holds the thread's lock. May run in another thread, as any may end a range that was
// started.
void show(ThreadRanges& thread) {
  std::atomic_ref(*thread.shown).store(thread.stack.range(), std::memory_order_relaxed);
}

// The destructor of another key may run later and use NVTX again. The thread then counts as in no
// range, since nothing would notice its second end.
void thread_ends(void* ranges) {
  this_thread.ranges_over = true;
  auto* thread = static_cast<ThreadRanges*>(ranges);
  this_thread.ranges = nullptr;
  {
    const alloc::LockGuard guard(list_mutex);
    (thread->previous == nullptr ? list : thread->previous->next) = thread->next;
    if (thread->next != nullptr) thread->next->previous = thread->previous;
  }
  while (const uint32_t run = the_phases.end_any(thread->phases)) tell("ended", run);
  std::atomic_ref(this_thread.range).store(0, std::memory_order_relaxed);
  alloc::os::unmap(thread, sizeof *thread);
}

void make_key() { have_key = pthread_key_create(&end_of_thread, thread_ends) == 0; }

[[gnu::noinline]] ThreadRanges* make_own_ranges() {
  if (this_thread.ranges_over) return nullptr;
  pthread_once(&key_made, make_key);
  if (!have_key) return nullptr;
  auto* thread = static_cast<ThreadRanges*>(alloc::os::map(sizeof(ThreadRanges)));
  if (thread == nullptr) return nullptr;
  if (pthread_setspecific(end_of_thread, thread) != 0) {
    alloc::os::unmap(thread, sizeof *thread);
    return nullptr;
  }
  thread->shown = &this_thread.range;
  const alloc::LockGuard guard(list_mutex);
  thread->next = list;
  if (list != nullptr) list->previous = thread;
  list = thread;
  return this_thread.ranges = thread;
}

// Logs each new range: the user chooses CISTERN_GRAPH_RANGE from these lines.
[[gnu::noinline]] void tell_range(uint32_t range) {
  if (!log_enabled(config::LogLevel::kDebug)) return;
  const uint32_t parent = tree.parent_of(range);
  log(config::LogLevel::kDebug, "range %u in %u: %s", range, parent,
      names().text(tree.name_of(range)));
}

// Caller holds the thread's lock.
Entry entry_of(ThreadRanges& thread, uint32_t domain, uint32_t name, uint64_t start,
               uint32_t* added) {
  const auto [range, is_new] = tree.range(thread.stack.range(), name);
  if (is_new) *added = range;
  return {range, domain, start, is_phase(name) ? ++thread.phase_keys : 0};
}

void began(ThreadRanges& thread, const Entry& entry, uint32_t name) {
  show(thread);
  if (entry.phase != 0) {
    phase_begins(thread.phases, Phases::Source::kRanges, name, entry.phase);
  }
}

void ended(ThreadRanges& thread, const Entry& entry) {
  show(thread);
  if (entry.phase != 0) tell("ended", the_phases.end_range(thread.phases, entry.phase));
}

bool end_here(ThreadRanges& thread, uint64_t start) {
  const alloc::LockGuard guard(thread.mutex);
  Entry entry;
  if (!thread.stack.end(start, &entry)) return false;
  ended(thread, entry);
  return true;
}

// The calling thread's; nullptr if there is no memory, or if the thread's end would not be noticed.
ThreadRanges* own_ranges() {
  ThreadRanges* thread = this_thread.ranges;
  return thread != nullptr ? thread : make_own_ranges();
}

Phases::Thread* own_phases() {
  return this_thread.ranges == nullptr ? nullptr : &this_thread.ranges->phases;
}

void marker_begins(const char* name) {
  ThreadRanges* thread = phases_on() ? own_ranges() : nullptr;
  if (thread == nullptr) return;
  const uint32_t number = names().number(name == nullptr ? "" : name);
  phase_begins(thread->phases, Phases::Source::kMarkers, number, 0);
}

void marker_ends() {
  Phases::Thread* thread = phases_on() ? own_phases() : nullptr;
  if (thread != nullptr) tell("ended", the_phases.end_marker(*thread));
}

}  // namespace

int push_range(uint32_t domain, uint32_t name) {
  ThreadRanges* thread = own_ranges();
  if (thread == nullptr) return alloc::RangeStack::kNotTracked;
  uint32_t added = 0;
  int level;
  {
    const alloc::LockGuard guard(thread->mutex);
    const bool has_room = thread->stack.has_room(domain);
    Entry entry{.range = 0, .domain = domain, .start = 0, .phase = 0};
    if (has_room) entry = entry_of(*thread, domain, name, 0, &added);
    level = thread->stack.push(entry);
    if (has_room && level >= 0) began(*thread, entry, name);
  }
  if (added != 0) [[unlikely]]
    tell_range(added);
  return level;
}

int pop_range(uint32_t domain) {
  ThreadRanges* thread = this_thread.ranges;
  if (thread == nullptr) return alloc::RangeStack::kNothingPushed;
  const alloc::LockGuard guard(thread->mutex);
  const alloc::RangeStack::Popped popped = thread->stack.pop(domain);
  if (popped.was_kept) ended(*thread, popped.entry);
  return popped.level;
}

void start_range(uint32_t domain, uint32_t name, uint64_t start) {
  ThreadRanges* thread = own_ranges();
  if (thread == nullptr) return;
  uint32_t added = 0;
  {
    const alloc::LockGuard guard(thread->mutex);
    if (!thread->stack.has_room(domain)) return;
    const Entry entry = entry_of(*thread, domain, name, start, &added);
    if (thread->stack.start(entry)) began(*thread, entry, name);
  }
  if (added != 0) tell_range(added);
}

void end_range(uint64_t start) {
  if (start == 0) return;
  if (this_thread.ranges != nullptr && end_here(*this_thread.ranges, start)) return;
  const alloc::LockGuard guard(list_mutex);
  for (ThreadRanges* thread = list; thread != nullptr; thread = thread->next) {
    if (end_here(*thread, start)) return;
  }
}

void end_domain(uint32_t domain) {
  if (domain == 0) return;
  const alloc::LockGuard guard(list_mutex);
  for (ThreadRanges* thread = list; thread != nullptr; thread = thread->next) {
    const alloc::LockGuard its(thread->mutex);
    Entry entry;
    while (thread->stack.end_of_domain(domain, &entry)) ended(*thread, entry);
  }
}

// The other threads do not exist in the child. Their records stay mapped, since the list may be
// half changed. Their phases are over.
void reset_ranges_after_fork() {
  list_mutex.reset();
  tree.reset_after_fork();
  list = this_thread.ranges;
  the_phases.reset_after_fork(list == nullptr ? nullptr : &list->phases);
  if (list == nullptr) return;
  list->mutex.reset();
  list->previous = list->next = nullptr;
}

uint32_t current_range() {
  return std::atomic_ref(this_thread.range).load(std::memory_order_relaxed);
}

uint32_t range_count() { return tree.count(); }

Range range_of(uint32_t range) { return {tree.parent_of(range), tree.name_of(range)}; }

uint32_t current_phase() { return phases_on() ? the_phases.current(own_phases()) : 0; }

Phases::Graph current_graph() {
  return phases_on() ? the_phases.graph(own_phases()) : Phases::Graph{};
}

void phase_allocated(uint64_t bytes) { the_phases.allocated(own_phases(), bytes); }

void phase_block_allocated(alloc::Memory memory, uint64_t address, uint64_t bytes,
                           uint64_t context) {
  the_phases.block_allocated(own_phases(), memory, address, bytes, context);
}

void phase_block_not_freed(const alloc::LiveBlocks::Block& block) {
  the_phases.block_not_freed(own_phases(), block);
}

}  // namespace cistern::shim

// The markers of the installed header (cistern.h), as programs call them. The header is not
// included: its declarations are weak, and its macros stand for calls.
extern "C" {

[[gnu::visibility("default")]] void cistern_graph_begin(const char* name) {
  cistern::shim::marker_begins(name);
}

[[gnu::visibility("default")]] void cistern_graph_end() { cistern::shim::marker_ends(); }

}  // extern "C"
