// SPDX-License-Identifier: Apache-2.0
// The pages of the host's pool. The first part returns them to the system. The second keeps them
// locked when the program unlocks memory. Any thread.
//
// The background thread returns freed pages to the system. It is started with the program's first
// CUDA call, since the driver starts threads as well. A process without CUDA that has one thread
// keeps to one: it may be about to make a sandbox or to fork. free() could not start the thread: it
// may be called while locks of the C library are held that a new thread needs.
//
// Without the thread, as in a forked child, nothing would return idle memory later. So all but a
// little goes back at once, and frees return the rest.
#include <jemalloc/jemalloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "allocator/base/os.h"
#include "allocator/host/system.h"
#include "shim/host/host_memory.h"
#include "shim/host/jemalloc.h"
#include "shim/process/background.h"
#include "shim/process/settings.h"

extern "C" {

int jemalloc_mallctl(const char* name, void* old, size_t* old_size, void* wanted, size_t size);
int jemalloc_mallctlbymib(const size_t* mib, size_t length, void* old, size_t* old_size,
                          void* wanted, size_t size);

}  // extern "C"

namespace cistern::shim {
namespace {

constinit std::atomic<bool> has_thread{false};
constinit std::atomic<uint64_t> due_ns{0};

uint64_t age_ns() { return policy().idle_ms.value * 1'000'000; }

constexpr BackgroundWork kWork = {
    .round = [] { return host_pool().release_idle(age_ns()); },
    .pause_ns = [] { return age_ns() / 2; },
    .calls_driver = false,
    .keeps_thread = true,
};

}  // namespace

void start_releasing_idle_host_memory(const config::Policy& settings) {
  if (!settings.free_idle_memory.value || !malloc_is_ours()) return;
  if (!attend(/*now=*/false, &kWork)) return;
  has_thread.store(true);
  host_pool().keep_idle(UINT64_MAX);
}

void release_idle_host_memory_if_due() {
  if (has_thread.load(std::memory_order_relaxed)) return;
  const uint64_t now = alloc::os::now_ns();
  uint64_t due = due_ns.load(std::memory_order_relaxed);
  if (now < due || !due_ns.compare_exchange_strong(due, now + age_ns())) return;
  host_pool().release_idle(age_ns());
}

void reset_idle_host_memory_after_fork() {
  if (has_thread.exchange(false)) host_pool().keep_idle(kMostIdleWithoutThread);
  forget_background_thread();
}

// --- The program asks for memory to go back to the system: by malloc_trim(), or as programs that
// know jemalloc do, by mallctl("arena.<i>.purge") or ".decay". jemalloc then returns its cached
// memory to the pool, and the pool returns it to the system.

namespace {

// "arena.<i>.purge" or "arena.<i>.decay".
bool gives_back(const char* name) {
  constexpr char kArena[] = "arena.";
  if (strncmp(name, kArena, sizeof kArena - 1) != 0) return false;
  const char* verb = strchr(name + sizeof kArena - 1, '.');
  return verb != nullptr && (strcmp(verb, ".purge") == 0 || strcmp(verb, ".decay") == 0);
}

// The same for a name in the form of numbers (mallctlnametomib()).
bool gives_back(const size_t* mib, size_t length) {
  constexpr size_t kParts = 3;
  if (length != kParts) return false;
  for (const char* name : {"arena.0.purge", "arena.0.decay"}) {
    size_t known[kParts], parts = kParts;
    if (mallctlnametomib(name, known, &parts) != 0) continue;
    if (mib[0] == known[0] && mib[2] == known[2]) return true;
  }
  return false;
}

template <typename Call>
int giving_back(Call call) {
  give_back_kept_blocks(/*for_good=*/false);
  const int code = call();
  if (code == 0) host_pool().release_idle(0);
  return code;
}

}  // namespace

}  // namespace cistern::shim

extern "C" {

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): its other face

[[gnu::visibility("default")]] int mallctl(const char* name, void* old, size_t* old_size,
                                           void* wanted, size_t size) {
  const auto call = [&] { return jemalloc_mallctl(name, old, old_size, wanted, size); };
  return gives_back(name) ? giving_back(call) : call();
}

[[gnu::visibility("default")]] int mallctlbymib(const size_t* mib, size_t length, void* old,
                                                size_t* old_size, void* wanted, size_t size) {
  const auto call = [&] { return jemalloc_mallctlbymib(mib, length, old, old_size, wanted, size); };
  return gives_back(mib, length) ? giving_back(call) : call();
}

// As in the C library: returns 1 if memory went back. The pool decides how much stays.
[[gnu::visibility("default")]] int malloc_trim(size_t) {
  jemalloc_mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
  const uint64_t before = host_pool().usage().released;
  giving_back([] {
    return jemalloc_mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // of all arenas
  });
  return host_pool().usage().released != before ? 1 : 0;
}

}  // extern "C"

// --- The program's own locking of memory. Locks do not nest: if the program calls munlock() on a
// buffer of malloc, that would unlock pages that the pool locked. So munlock() leaves out those
// pages, and after munlockall() they are locked again. Results and errors are the kernel's. All
// other functions go to the kernel directly: what the program locks is locked, in the pool or not.

namespace {

namespace host = cistern::alloc::host;
using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

int unlock(uintptr_t start, uint64_t bytes) {
  return static_cast<int>(syscall(SYS_munlock, start, bytes));
}

// In address order, as the kernel does. Stops at the first piece that it cannot unlock.
int unlock_beside_the_pool(uintptr_t start, uint64_t bytes) {
  int result = 0;
  host_pool().for_each_locked(
      start, bytes,
      [&](uintptr_t piece, uint64_t size) {
        // If the program had locked the piece, each of its pages was made resident. From now on
        // pages are locked as they are touched.
        if (result == 0) host::pages::lock(piece, size, /*eager=*/false);
      },
      [&](uintptr_t piece, uint64_t size) {
        if (result == 0) result = unlock(piece, size);
      });
  return result;
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int munlock(const void* address, size_t length) noexcept {
  const auto first = reinterpret_cast<uintptr_t>(address);
  const uintptr_t start = first / host::kPage * host::kPage;
  const uintptr_t end = (first + length + host::kPage - 1) / host::kPage * host::kPage;
  if (!host_locks() || end <= start) return unlock(first, length);
  return unlock_beside_the_pool(start, end - start);
}

[[gnu::visibility("default")]] int munlockall() noexcept {
  const long result = syscall(SYS_munlockall);
  if (host_locks()) host_pool().lock_again();
  return static_cast<int>(result);
}

}  // extern "C"
