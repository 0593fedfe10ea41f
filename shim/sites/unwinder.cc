// SPDX-License-Identifier: Apache-2.0
#include "shim/sites/sites.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "allocator/base/os.h"

namespace cistern::shim {
namespace {

#if defined(__x86_64__)
#define CISTERN_UNW(name) "_Ux86_64_" name
#define CISTERN_UNW_LOCAL(name) "_ULx86_64_" name
constexpr int kInstruction = 16;  // UNW_REG_IP
#elif defined(__aarch64__)
#define CISTERN_UNW(name) "_Uaarch64_" name
#define CISTERN_UNW_LOCAL(name) "_ULaarch64_" name
constexpr int kInstruction = 30;
#endif

// At least as large as any version's unw_cursor_t and unw_context_t.
struct alignas(64) Cursor {
  uint64_t words[512];
};
struct alignas(64) Registers {
  uint64_t words[1024];
};
constexpr uint64_t kLoadingWaitNs = 1'000'000'000;
constexpr int kCachePerThread = 2;  // UNW_CACHE_PER_THREAD

// Functions that libunwind.h calls unw_backtrace, unw_getcontext and so on.
struct Libunwind {
  int (*backtrace)(void** buffer, int size);
  int (*getcontext)(Registers* registers);
  int (*init_local)(Cursor* cursor, Registers* registers);
  int (*step)(Cursor* cursor);
  int (*get_reg)(Cursor* cursor, int number, uint64_t* value);
  int (*set_caching_policy)(void* space, int policy);
  void (*flush_cache)(void* space, uint64_t low, uint64_t high);
  void** local_space;
};

// unw_backtrace() frees its cache of a thread after ThreadSanitizer's runtime has dropped that
// thread, and crashes.
#if defined(__SANITIZE_THREAD__)
constexpr bool kStepsOnly = true;
#else
constexpr bool kStepsOnly = false;
#endif

enum class State : int { unasked, loading, ready, absent };

constinit std::atomic<State> state{State::unasked};
constinit Libunwind libunwind{};
constinit char why_absent[256] = "";
constinit std::atomic<uint64_t> loads_when_flushed{0};
constinit std::atomic<uint64_t> unloads_at_start{0};

template <typename Function>
void find(void* library, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(dlsym(library, name));
}

bool load() {
  void* library = dlopen("libunwind.so.8", RTLD_LOCAL | RTLD_NOW);
  if (library == nullptr) library = dlopen("libunwind.so", RTLD_LOCAL | RTLD_NOW);
  if (library != nullptr) find(library, "unw_backtrace", libunwind.backtrace);
  if (libunwind.backtrace == nullptr) {
    const char* error = dlerror();
    snprintf(why_absent, sizeof why_absent, "%s", error == nullptr ? "it is another one" : error);
    return false;
  }
  find(library, CISTERN_UNW("getcontext"), libunwind.getcontext);
  find(library, CISTERN_UNW_LOCAL("init_local"), libunwind.init_local);
  find(library, CISTERN_UNW_LOCAL("step"), libunwind.step);
  find(library, CISTERN_UNW_LOCAL("get_reg"), libunwind.get_reg);
  find(library, CISTERN_UNW_LOCAL("set_caching_policy"), libunwind.set_caching_policy);
  find(library, CISTERN_UNW("flush_cache"), libunwind.flush_cache);
  find(library, CISTERN_UNW_LOCAL("local_addr_space"), libunwind.local_space);
  // Otherwise threads that unwind wait for each other.
  if (libunwind.set_caching_policy != nullptr && libunwind.local_space != nullptr) {
    libunwind.set_caching_policy(*libunwind.local_space, kCachePerThread);
  }
  return true;
}

bool can_step() {
  return libunwind.getcontext != nullptr && libunwind.init_local != nullptr &&
         libunwind.step != nullptr && libunwind.get_reg != nullptr &&
         libunwind.flush_cache != nullptr && libunwind.local_space != nullptr;
}

// Loads libunwind at the first call. Other threads wait for that, but not for long: the loading
// thread may wait for the loader's lock, and a waiting thread may hold it.
[[gnu::cold]] bool load_once() {
  State now = State::unasked;
  if (state.compare_exchange_strong(now, State::loading)) {
    unloads_at_start.store(loaded_files().unloads, std::memory_order_relaxed);
    now = load() ? State::ready : State::absent;
    state.store(now, std::memory_order_release);
  } else if (now == State::loading) {
    alloc::os::wait_until(
        [&] { return (now = state.load(std::memory_order_acquire)) != State::loading; },
        kLoadingWaitNs);
  }
  return now == State::ready;
}

[[gnu::noinline]] int step_by_step(void** out, int most, uint64_t changes) {
  if (loads_when_flushed.exchange(changes, std::memory_order_acq_rel) != changes) {
    libunwind.flush_cache(*libunwind.local_space, 0, 0);
  }
  Registers registers;
  Cursor cursor;
  libunwind.getcontext(&registers);
  if (libunwind.init_local(&cursor, &registers) < 0) return 0;
  int count = 0;
  while (count < most && libunwind.step(&cursor) > 0) {
    uint64_t address = 0;
    if (libunwind.get_reg(&cursor, kInstruction, &address) < 0 || address == 0) break;
    out[count++] = reinterpret_cast<void*>(address);
  }
  return count;
}

}  // namespace

LoadedFiles loaded_files() {
  LoadedFiles found{};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<LoadedFiles*>(out) = {info->dlpi_adds, info->dlpi_subs};
        return 1;
      },
      &found);
  return found;
}

void load_unwinder_once() { load_once(); }

int return_addresses(void** out, int most) {
  if (state.load(std::memory_order_acquire) != State::ready && !load_once()) return 0;
  if (kStepsOnly && can_step()) return step_by_step(out, most, loaded_files().changes());
  return std::max(libunwind.backtrace(out, most), 0);
}

// unw_backtrace() caches for each thread how an address is unwound, and keeps that for good, even
// after an unload. Unwinding step by step uses another cache, which can be emptied.
bool may_be_outdated(const LoadedFiles& loaded) {
  return loaded.unloads != unloads_at_start.load(std::memory_order_relaxed) && can_step();
}

int exact_return_addresses(void** out, int most, const LoadedFiles& loaded) {
  return step_by_step(out, most, loaded.changes());
}

const char* why_no_unwinder() {
  return state.load(std::memory_order_acquire) == State::absent ? why_absent : nullptr;
}

void reset_unwinder_after_fork() {
  State expected = State::loading;
  state.compare_exchange_strong(expected, State::unasked);
}

}  // namespace cistern::shim
