// SPDX-License-Identifier: Apache-2.0
// The seam to jemalloc. Two moments matter:
//
//   its first call    jemalloc reads its configuration, by secure_getenv("MALLOC_CONF"), makes its
//                     first arena, and registers its fork handlers; both calls come here (the
//                     linker's --wrap). With the second the extent hooks are set, of this arena and
//                     those to come
//   any thread, later jemalloc calls the hooks, some of them with locks of its own held; when it
//                     sets itself up for a new thread, that call comes here, too (--wrap)
//
// So the hooks call nothing that may allocate or take a lock of the C library, which may hold some
// when it calls free(). The fork handlers here are registered before jemalloc's, and those before
// all others, so that a fork takes jemalloc's locks when the others' handlers have run, and ours
// last.
#include <jemalloc/jemalloc.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

#include "allocator/base/os.h"
#include "allocator/host/system.h"
#include "shim/entry/loader.h"
#include "shim/host/host_memory.h"
#include "shim/host/jemalloc_inside.h"
#include "shim/host/large_blocks.h"
#include "shim/process/life.h"
#include "shim/process/log.h"
#include "shim/process/no_cancel.h"
#include "shim/process/own_file.h"
#include "shim/process/settings.h"

constinit JemallocArenaConfig arena_config = {.extent_hooks = &jemalloc_extent_hooks,
                                              .also_for_metadata = true};

namespace cistern::shim {

using alloc::host::HostPolicy;
using alloc::host::HostPool;

namespace {

constinit HostPool pool{};
constinit bool locking = false;
constinit bool configured = false;           // jemalloc has its configuration from here
constinit std::atomic<bool> serving{false};  // and its memory

// --- the policy ---

uint64_t soft_lock_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

// Address space that the program may need for stacks and mappings of its own is not reserved.
constexpr uint64_t kPartOfLimit = 16;
// And none that one large request may need, which the C library would give it.
constexpr uint64_t kSmallPartOfLimit = 256, kLeastPart = uint64_t{4} << 20;
// Freed memory that is kept where nothing is set, with what large_blocks.h keeps; the rest goes
// back at once.
constexpr uint64_t kMostIdle = uint64_t{40} << 20;

// The lower of the limits on address space and on what of it may be written (ulimit -v, -d).
uint64_t memory_limit() {
  uint64_t lowest = RLIM_INFINITY;
  for (const auto kind : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit;
    if (getrlimit(kind, &limit) == 0) lowest = std::min<uint64_t>(lowest, limit.rlim_cur);
  }
  return lowest;
}

// So little that chunks have to be smaller than they would be.
bool memory_is_short(const config::Policy& settings) {
  return memory_limit() / kPartOfLimit < settings.initial_cpu_memory_in_mb.value << 20;
}

void tell_lock_refused(uint64_t locked, uint64_t wanted) {
  const NoCancel inside_malloc;
  const uint64_t limit = soft_lock_limit();
  if (limit == UINT64_MAX) {
    log(config::LogLevel::kWarn,
        "host memory: locked %llu of %llu KiB, no limit; the rest stays unlocked",
        static_cast<unsigned long long>(locked >> 10),
        static_cast<unsigned long long>(wanted >> 10));
    return;
  }
  log(config::LogLevel::kWarn,
      "host memory: locked %llu of %llu KiB, limit %llu; the rest stays unlocked",
      static_cast<unsigned long long>(locked >> 10), static_cast<unsigned long long>(wanted >> 10),
      static_cast<unsigned long long>(limit >> 10));
}

// Asked once, and at load at the latest: it takes long, and a sandbox that the program sets up may
// forbid it.
uint64_t usable_memory() {
  constexpr uint64_t kUnknown = UINT64_MAX;
  static constinit std::atomic<uint64_t> known{kUnknown};
  uint64_t bytes = known.load(std::memory_order_relaxed);
  if (bytes == kUnknown) known.store(bytes = alloc::host::usable_memory());
  return bytes;
}

uint64_t share_of_usable_memory() {
  const uint64_t usable = usable_memory();
  if (usable == 0) return UINT64_MAX;
  return static_cast<uint64_t>(policy().fraction_of_cpu_memory_to_use.value *
                               static_cast<double>(usable));
}

HostPolicy policy_of(const config::Policy& settings) {
  const uint64_t limit = soft_lock_limit();
  const bool all = settings.use_pinned_memory.set || limit == UINT64_MAX;
  const bool modest = settings.leaves_host_memory();
  const uint64_t part = modest ? std::max(memory_limit() / kSmallPartOfLimit, kLeastPart)
                               : memory_limit() / kPartOfLimit;
  return {.chunk_bytes = std::min(settings.initial_cpu_memory_in_mb.value << 20, part),
          .own_bytes = modest ? kOwnMappingBytes : UINT64_MAX,
          .most_idle = modest                            ? kMostIdle
                       : settings.free_idle_memory.value ? kMostIdleWithoutThread
                                                         : UINT64_MAX,
          .most_chunk_bytes = share_of_usable_memory,
          .locks = settings.locks_host_memory(),
          .eager = settings.pin_eager.value,
          .most_locked = all ? UINT64_MAX : limit / 2,
          .lock_refused = tell_lock_refused};
}

// --- jemalloc's configuration ---

constexpr unsigned kMostArenas = 32;

// The later of two values for one option wins: what the user says comes after ours.
const char* compose(const char* of_user) {
  static constinit char text[1024] = "";
  const config::Policy& settings = policy();
  const unsigned arenas = std::min(4 * alloc::os::allowed_cpus(), kMostArenas);
  // The pool keeps what is freed. Where it is to go back after a while, the pool has to know of it
  // at once: jemalloc looks at what it keeps only while the program allocates. Where memory is
  // short, what one of jemalloc's arenas keeps would be missed by the others.
  const bool modest = settings.leaves_host_memory();
  const bool at_once = modest || settings.free_idle_memory.value || memory_is_short(settings);
  const int decay_ms = at_once ? 0 : 10'000;
  // A thread's cache takes blocks of up to 256 KiB (what it has stays while the thread rests: of up
  // to 64 KiB where nothing is set, beside large_blocks.h), and one kind of them is looked through
  // each time so many bytes were allocated. jemalloc's own 64 KiB would be every third block of 4
  // to 64 KiB, and twice the time.
  int length = snprintf(text, sizeof text,
                        "retain:false,oversize_threshold:0,narenas:%u,dirty_decay_ms:%d,"
                        "muzzy_decay_ms:0,tcache_max:%d,tcache_gc_incr_bytes:262144",
                        arenas, decay_ms, modest ? 65'536 : 262'144);
  for (const char* more : {of_user, settings.malloc_conf.set ? settings.malloc_conf.value : ""}) {
    if (more == nullptr || *more == '\0') continue;
    const size_t room = sizeof text - static_cast<size_t>(length);
    if (strlen(more) + 2 > room) {
      log(config::LogLevel::kWarn, "jemalloc's configuration is too long, and left out: %.60s...",
          more);
      continue;
    }
    length += snprintf(text + length, room, ",%s", more);
  }
  return text;
}

// jemalloc prints what the system refuses it. The program is told by its own calls, and nothing is
// printed unasked; whatever else jemalloc prints was asked for.
void print_what_was_asked_for(void*, const char* text) {
  for (const char* unasked : {"<jemalloc>: Error in m", "<jemalloc>: Cannot "}) {
    if (strncmp(text, unasked, strlen(unasked)) == 0) return;
  }
  write_quietly(STDERR_FILENO, text, strlen(text));
}

// --- a thread's first memory ---

// jemalloc's place for a new thread's freed blocks, with what is around it.
constexpr size_t kFirstBytes = size_t{128} << 10;

// Held for the calling thread while jemalloc sets itself up for it.
char* first_memory() { return reinterpret_cast<char*>(left_for_hook); }
char* let_go_of_first_memory() { return reinterpret_cast<char*>(std::exchange(left_for_hook, 0)); }

// What is held for this thread, where it is enough; the rest of it goes back.
void* take_first_memory(size_t bytes, size_t alignment, bool* zero) {
  if (first_memory() == nullptr || bytes > kFirstBytes || alignment > alloc::host::kPage) {
    return nullptr;
  }
  if (bytes != kFirstBytes && !pool.note_split()) return nullptr;
  char* memory = let_go_of_first_memory();
  if (bytes != kFirstBytes) pool.give_back(memory + bytes, kFirstBytes - bytes);
  if (*zero) memset(memory, 0, bytes);
  return memory;
}

// --- extent hooks ---

void* extent_alloc(extent_hooks_t*, void* wanted, size_t bytes, size_t alignment, bool* zero,
                   bool* commit, unsigned) {
  if (wanted != nullptr) return nullptr;
  void* memory = pool.take(bytes, alignment, zero);
  const size_t asked = asked_of_extent();
  if (memory == nullptr && asked != 0 && asked < bytes && alignment <= alloc::host::kPage) {
    memory = pool.take_backed(bytes, asked);
    *zero = *zero || memory != nullptr;
  }
  if (memory == nullptr && asked == 0) memory = take_first_memory(bytes, alignment, zero);
  if (memory != nullptr) *commit = true;
  return memory;
}

// What jemalloc took before its hooks were set is not the pool's: true, it keeps that.
bool extent_dalloc(extent_hooks_t*, void* memory, size_t bytes, bool, unsigned) {
  if (!pool.give_back(memory, bytes)) return true;
  if (policy().free_idle_memory.value) release_idle_host_memory_if_due();
  return false;
}

void extent_destroy(extent_hooks_t*, void* memory, size_t bytes, bool, unsigned) {
  pool.give_back(memory, bytes);
}

bool extent_commit(extent_hooks_t*, void*, size_t, size_t, size_t, unsigned) { return false; }
// Refused: the pool decides when pages go back to the system.
bool extent_keep(extent_hooks_t*, void*, size_t, size_t, size_t, unsigned) { return true; }
bool extent_split(extent_hooks_t*, void* memory, size_t, size_t, size_t, bool, unsigned) {
  return !pool.note_split(memory);
}

bool extent_merge(extent_hooks_t*, void* a, size_t, void* b, size_t, bool, unsigned) {
  if (!pool.same_chunk(a, b)) return true;
  pool.note_merged();
  return false;
}

constinit extent_hooks_t hooks = {.alloc = extent_alloc,
                                  .dalloc = extent_dalloc,
                                  .destroy = extent_destroy,
                                  .commit = extent_commit,
                                  .decommit = extent_keep,
                                  .purge_lazy = extent_keep,
                                  .purge_forced = extent_keep,
                                  .split = extent_split,
                                  .merge = extent_merge};

// With what comes back to it jemalloc may ask for more and more (the C library's environment was
// not there at its first call, or the user asked for it): it keeps to itself then.
void serve_jemalloc() {
  if (!configured || retains) return;
  const HostPolicy wanted = policy_of(policy());
  locking = wanted.locks;
  pool.init(wanted);
  set_extent_hooks(base_of_first_arena(), &hooks);
  arena_config = {.extent_hooks = &hooks, .also_for_metadata = false};
  if (policy().leaves_host_memory() && !profiles && !huge_pages) serve_large_blocks();
  serving.store(true, std::memory_order_release);
}

// jemalloc's first call, unless there was one. mallctl() would make tables that nobody may need.
void make_first_call() {
  if (void* block = mallocx(1, 0); block != nullptr) dallocx(block, 0);
}

// --- forks ---

// By the C library's function of the name that this object exports. It is looked up for jemalloc's
// handlers, which come first: later the loader's lock may be held by a thread that waits for this
// one. The C library comes before this object where this was opened late.
int register_with_libc(void (*prepare)(), void (*parent)(), void (*child)(), void* object) {
  static constexpr const char* kName = "__register_atfork";
  static constinit std::atomic<decltype(&register_fork_handlers)> known{nullptr};
  auto function = known.load(std::memory_order_acquire);
  if (function == nullptr) {
    void* found = definition_after_us(kName);
    if (found == nullptr) found = first_definition(kName);
    function = reinterpret_cast<decltype(&register_fork_handlers)>(found);
    known.store(function, std::memory_order_release);
  }
  return function(prepare, parent, child, object);
}

void before_fork() {
  lock_kept_blocks();
  pool.lock();
}

void in_parent() {
  pool.unlock();
  unlock_kept_blocks();
}

void in_child() {
  pool.unlock_in_child();
  reset_kept_blocks_lock();
  locking = false;
  reset_idle_host_memory_after_fork();
}

}  // namespace

void start_host_memory(const config::Policy& settings) {
  const int fill = settings.fill_byte();
  operators_are_ours();
  make_first_call();
  if (!serving.load(std::memory_order_acquire)) return;
  usable_memory();
  if (fill >= 0) fill_host_memory(fill);
}

bool describe_host_memory(alloc::host::HostUsage* out) {
  *out = pool.usage();
  return true;
}

HostPool& host_pool() { return pool; }

bool host_locks() { return locking; }

}  // namespace cistern::shim

extern "C" {

// The linker's names for what --wrap takes from jemalloc, and for what it gets instead.
char* real_secure_getenv(const char* name) asm("__real_secure_getenv");
char* wrapped_secure_getenv(const char* name) asm("__wrap_secure_getenv");
int wrapped_pthread_atfork(void (*prepare)(), void (*parent)(),
                           void (*child)()) asm("__wrap_pthread_atfork");

bool real_thread_set_up(void* thread) asm("__real_je_tsd_tcache_enabled_data_init");
bool wrapped_thread_set_up(void* thread) asm("__wrap_je_tsd_tcache_enabled_data_init");
// jemalloc's, which reads anew how the thread is served.
void jemalloc_thread_changed(void* thread) asm("je_tsd_slow_update");
// And the thread's arena, made now if need be; nullptr: there is no memory for it.
void* jemalloc_arena_of(void* thread, bool internal) asm("je_arena_choose_hard");

// The program's first malloc may come before the C library knows the environment: jemalloc then
// works as it was built.
char* wrapped_secure_getenv(const char* name) {
  char* of_user = real_secure_getenv(name);
  if (strcmp(name, "MALLOC_CONF") != 0 || environ == nullptr) return of_user;
  using namespace cistern::shim;  // NOLINT(google-build-using-namespace): its other face
  if (!active()) return of_user;
  malloc_message = print_what_was_asked_for;
  configured = true;
  varies_beginnings = varies_beginnings && !policy().leaves_host_memory();
  return const_cast<char*>(compose(of_user));
}

// jemalloc gives a new thread an arena and a place for freed blocks here, and uses them also where
// there was no memory for them. So both are seen to first. Where there is none the thread goes
// without such a place, as with tcache:false.
bool wrapped_thread_set_up(void* thread) {
  using namespace cistern::shim;  // NOLINT(google-build-using-namespace): its other face
  if (!serving.load(std::memory_order_acquire)) return real_thread_set_up(thread);
  bool zero = false;
  left_for_hook =
      reinterpret_cast<uintptr_t>(pool.take(kFirstBytes, cistern::alloc::host::kPage, &zero));
  if (first_memory() == nullptr || jemalloc_arena_of(thread, /*internal=*/false) == nullptr) {
    if (first_memory() != nullptr) pool.give_back(let_go_of_first_memory(), kFirstBytes);
    jemalloc_thread_changed(thread);
    return false;
  }
  const bool failed = real_thread_set_up(thread);
  if (first_memory() != nullptr) pool.give_back(let_go_of_first_memory(), kFirstBytes);
  return failed;
}

// jemalloc's handlers, during its first call: ours first, so that they run last before a fork.
int wrapped_pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)()) {
  using namespace cistern::shim;  // NOLINT(google-build-using-namespace): its other face
  static constinit std::atomic<bool> registered{false};
  if (!registered.exchange(true)) {
    register_with_libc(before_fork, in_parent, in_child, nullptr);
    serve_jemalloc();
  }
  return register_with_libc(prepare, parent, child, nullptr);
}

}  // extern "C"

namespace cistern::shim {

// Of all handlers that prepare a fork jemalloc's must be the last, since they take the locks of
// malloc, and the last ones are those that were registered first.
[[gnu::visibility("default")]] int register_fork_handlers(void (*prepare)(), void (*parent)(),
                                                          void (*child)(), void* object) noexcept {
  make_first_call();
  return register_with_libc(prepare, parent, child, object);
}

}  // namespace cistern::shim
