// SPDX-License-Identifier: Apache-2.0
// The seam to jemalloc. Two moments matter:
//
//   its first call    jemalloc reads its configuration by secure_getenv("MALLOC_CONF"), makes its
//                     first arena, and registers its fork handlers by pthread_atfork(). The
//                     linker's --wrap leads these two calls here. The second one sets the extent
//                     hooks, of this arena and of later ones
//   any thread, later jemalloc calls the hooks, some of them with its own locks held. When it sets
//                     itself up for a new thread, --wrap leads that call here as well
//
// free() may be called with locks of the C library held. So the hooks call nothing that may
// allocate or take such a lock. The fork handlers here are registered before jemalloc's, and those
// before all others: a fork runs the others' handlers first, then takes jemalloc's locks, then
// ours.
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
#include "shim/host/jemalloc.h"
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
constinit bool configured = false;           // jemalloc got its configuration from here
constinit std::atomic<bool> serving{false};  // and gets its memory from here

// --- the policy ---

uint64_t soft_lock_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

// The pool must leave the program address space for stacks and mappings of its own.
constexpr uint64_t kPartOfLimit = 16;
// And for one large request, which the C library would be able to serve.
constexpr uint64_t kSmallPartOfLimit = 256, kLeastPart = uint64_t{4} << 20;
// The most freed memory that is kept if nothing is set, including what large_blocks.cc keeps. More
// goes back at once.
constexpr uint64_t kMostIdle = uint64_t{40} << 20;

// The lower of the limits on address space and on writable memory (ulimit -v, -d).
uint64_t memory_limit() {
  uint64_t lowest = RLIM_INFINITY;
  for (const auto kind : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit;
    if (getrlimit(kind, &limit) == 0) lowest = std::min<uint64_t>(lowest, limit.rlim_cur);
  }
  return lowest;
}

// The limit is so low that chunks must be smaller than their setting.
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

// Computed once, at load at the latest: it takes long, and the program may set up a sandbox that
// forbids it.
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

// If an option appears twice, jemalloc uses the later value. So the user's options come after ours.
const char* compose(const char* of_user) {
  static constinit char text[1024] = "";
  const config::Policy& settings = policy();
  const unsigned arenas = std::min(4 * alloc::os::allowed_cpus(), kMostArenas);
  // The pool keeps freed memory. If idle memory is to go back after a while, jemalloc must return
  // it to the pool at once: jemalloc checks its caches only while the program allocates. If memory
  // is short, other arenas would lack the memory that one arena caches.
  const bool modest = settings.leaves_host_memory();
  const bool at_once = modest || settings.free_idle_memory.value || memory_is_short(settings);
  const int decay_ms = at_once ? 0 : 10'000;
  // A thread's cache takes blocks of up to 256 KiB. While the thread rests it keeps them, so the
  // bound is 64 KiB if nothing is set; then large_blocks.cc keeps larger ones. The cache checks one
  // size class for unused blocks after each tcache_gc_incr_bytes of allocation. jemalloc's default
  // of 64 KiB would check at every third block of 4 to 64 KiB, and double the time.
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

// jemalloc prints an error if a system call fails. The program learns of that from its own calls,
// and Cistern prints nothing unless asked. All other output of jemalloc was asked for.
void print_what_was_asked_for(void*, const char* text) {
  for (const char* unasked : {"<jemalloc>: Error in m", "<jemalloc>: Cannot "}) {
    if (strncmp(text, unasked, strlen(unasked)) == 0) return;
  }
  write_quietly(STDERR_FILENO, text, strlen(text));
}

// --- a thread's first memory ---

// The memory that jemalloc needs for a new thread: its cache of freed blocks, and what surrounds
// it.
constexpr size_t kFirstBytes = size_t{128} << 10;

// Reserved for the calling thread while jemalloc sets itself up for that thread.
char* first_memory() { return reinterpret_cast<char*>(left_for_hook); }
char* let_go_of_first_memory() { return reinterpret_cast<char*>(std::exchange(left_for_hook, 0)); }

// Returns the memory reserved for this thread if it is large enough. The rest goes back to the
// pool.
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

// Memory that jemalloc took before its hooks were set is not the pool's. True: jemalloc keeps it.
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

// jemalloc works without the pool if it may retain memory that comes back to it (opt.retain), since
// its requests may then grow without end. That is so if the user set the option. It may also be so
// if jemalloc works as it was built: its first call came before the C library had the environment,
// or Cistern is inactive.
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

// Makes jemalloc's first call if there was none. mallctl() would build tables that may never be
// needed.
void make_first_call() {
  if (void* block = mallocx(1, 0); block != nullptr) dallocx(block, 0);
}

// --- forks ---

// Calls the C library's function whose name this object exports. It is looked up when jemalloc
// registers its handlers, the first ones. Later a thread that waits for this one may hold the
// loader's lock. The C library comes before this object if this object was opened late.
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

// The linker's names for jemalloc's calls that --wrap redirects, and for their replacements.
char* real_secure_getenv(const char* name) asm("__real_secure_getenv");
char* wrapped_secure_getenv(const char* name) asm("__wrap_secure_getenv");
int wrapped_pthread_atfork(void (*prepare)(), void (*parent)(),
                           void (*child)()) asm("__wrap_pthread_atfork");

bool real_thread_set_up(void* thread) asm("__real_je_tsd_tcache_enabled_data_init");
bool wrapped_thread_set_up(void* thread) asm("__wrap_je_tsd_tcache_enabled_data_init");
// jemalloc's function: reads again how the thread is served.
void jemalloc_thread_changed(void* thread) asm("je_tsd_slow_update");
// Makes the thread's arena if it has none; nullptr: out of memory.
void* jemalloc_arena_of(void* thread, bool internal) asm("je_arena_choose_hard");

// The program's first malloc may come before the C library has the environment. Then jemalloc works
// as it was built.
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

// jemalloc gives a new thread an arena and a cache of freed blocks here, and uses them even if
// there was no memory for them. So both are allocated first. If that fails, the thread works
// without a cache, as with tcache:false.
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

// jemalloc registers its handlers during its first call. Ours are registered first, so that they
// run last before a fork.
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

// jemalloc's prepare handlers must run after all others, since they take malloc's locks. Prepare
// handlers run in reverse order of registration.
[[gnu::visibility("default")]] int register_fork_handlers(void (*prepare)(), void (*parent)(),
                                                          void (*child)(), void* object) noexcept {
  make_first_call();
  return register_with_libc(prepare, parent, child, object);
}

}  // namespace cistern::shim
