// SPDX-License-Identifier: Apache-2.0
#include "shim/sites/sites.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string_view>

#include "allocator/base/os.h"
#include "allocator/record/names.h"
#include "shim/process/no_cancel.h"
#include "shim/process/thread.h"

// Defined by the linker: where this object begins, and where its code ends.
extern "C" {
// NOLINTNEXTLINE(readability-identifier-naming)
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char etext;
}

namespace cistern::shim {

// --- the unwinder ---

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

enum class UnwinderState : int { unasked, loading, ready, absent };

constinit std::atomic<UnwinderState> unwinder_state{UnwinderState::unasked};
constinit Libunwind libunwind{};
constinit char why_absent[256] = "";
constinit std::atomic<uint64_t> loads_when_flushed{0};
constinit std::atomic<uint64_t> unloads_at_start{0};

template <typename Function>
void find_in_libunwind(void* library, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(dlsym(library, name));
}

bool load_libunwind() {
  void* library = dlopen("libunwind.so.8", RTLD_LOCAL | RTLD_NOW);
  if (library == nullptr) library = dlopen("libunwind.so", RTLD_LOCAL | RTLD_NOW);
  if (library != nullptr) find_in_libunwind(library, "unw_backtrace", libunwind.backtrace);
  if (libunwind.backtrace == nullptr) {
    const char* error = dlerror();
    snprintf(why_absent, sizeof why_absent, "%s", error == nullptr ? "it is another one" : error);
    return false;
  }
  find_in_libunwind(library, CISTERN_UNW("getcontext"), libunwind.getcontext);
  find_in_libunwind(library, CISTERN_UNW_LOCAL("init_local"), libunwind.init_local);
  find_in_libunwind(library, CISTERN_UNW_LOCAL("step"), libunwind.step);
  find_in_libunwind(library, CISTERN_UNW_LOCAL("get_reg"), libunwind.get_reg);
  find_in_libunwind(library, CISTERN_UNW_LOCAL("set_caching_policy"), libunwind.set_caching_policy);
  find_in_libunwind(library, CISTERN_UNW("flush_cache"), libunwind.flush_cache);
  find_in_libunwind(library, CISTERN_UNW_LOCAL("local_addr_space"), libunwind.local_space);
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

// How many files the process has loaded and unloaded so far. While both numbers stay the same, an
// address means the same code.
struct LoadedFiles {
  uint64_t loads, unloads;
  uint64_t changes() const { return loads + unloads; }
};

LoadedFiles loaded_files() {
  LoadedFiles files{};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<LoadedFiles*>(out) = {info->dlpi_adds, info->dlpi_subs};
        return 1;
      },
      &files);
  return files;
}

// Loads libunwind at the first call. Other threads wait for that, but not for long: the loading
// thread may wait for the loader's lock, and a waiting thread may hold it. False if libunwind is
// not ready.
[[gnu::cold]] bool load_unwinder_once() {
  UnwinderState now = UnwinderState::unasked;
  if (unwinder_state.compare_exchange_strong(now, UnwinderState::loading)) {
    unloads_at_start.store(loaded_files().unloads, std::memory_order_relaxed);
    now = load_libunwind() ? UnwinderState::ready : UnwinderState::absent;
    unwinder_state.store(now, std::memory_order_release);
  } else if (now == UnwinderState::loading) {
    alloc::os::wait_until(
        [&] {
          return (now = unwinder_state.load(std::memory_order_acquire)) != UnwinderState::loading;
        },
        kLoadingWaitNs);
  }
  return now == UnwinderState::ready;
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

// Writes at most `most` return addresses, innermost first, including the caller's own. Returns
// their number; 0 if libunwind cannot be loaded, or while another thread takes long to load it.
int return_addresses(void** out, int most) {
  if (unwinder_state.load(std::memory_order_acquire) != UnwinderState::ready &&
      !load_unwinder_once()) {
    return 0;
  }
  if (kStepsOnly && can_step()) return step_by_step(out, most, loaded_files().changes());
  return std::max(libunwind.backtrace(out, most), 0);
}

// Whether return_addresses() may use cached data of a library that was unloaded. Its result may
// then be wrong, but is safe: it tests each address before it reads it. unw_backtrace() caches for
// each thread how an address is unwound, and keeps that for good, even after an unload. Unwinding
// step by step uses another cache, which can be emptied.
bool may_be_outdated(const LoadedFiles& loaded) {
  return loaded.unloads != unloads_at_start.load(std::memory_order_relaxed) && can_step();
}

// The same as return_addresses(), without cached data; takes a microsecond a frame. Call
// return_addresses() before. `loaded` is loaded_files().
int exact_return_addresses(void** out, int most, const LoadedFiles& loaded) {
  return step_by_step(out, most, loaded.changes());
}

// In a forked child: a thread of the parent may have been loading libunwind.
void reset_unwinder_after_fork() {
  UnwinderState expected = UnwinderState::loading;
  unwinder_state.compare_exchange_strong(expected, UnwinderState::unasked);
}

}  // namespace

const char* why_no_unwinder() {
  return unwinder_state.load(std::memory_order_acquire) == UnwinderState::absent ? why_absent
                                                                                 : nullptr;
}

namespace {

// --- the file whose code is at an address, as long as it is loaded ---

struct CodeAddress {
  uint64_t address;  // set by the caller
  uint32_t file;     // the number of its path (names()); 0: no file's
  uint64_t offset;   // the address as that file's symbol table gives it
};

struct Search {
  CodeAddress* codes;
  int count;
};

bool holds(const dl_phdr_info& file, uint64_t address) {
  for (int i = 0; i < file.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = file.dlpi_phdr[i];
    if (part.p_type == PT_LOAD && address - file.dlpi_addr - part.p_vaddr < part.p_memsz) {
      return true;
    }
  }
  return false;
}

// The loader has no name for the program itself.
uint32_t name_of(const dl_phdr_info& file) {
  if (file.dlpi_name != nullptr && file.dlpi_name[0] != '\0') return names().number(file.dlpi_name);
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
  return length <= 0 ? 0 : names().number(std::string_view(program, static_cast<size_t>(length)));
}

int find_codes_in(dl_phdr_info* file, size_t /*size*/, void* data) {
  const Search& search = *static_cast<Search*>(data);
  uint32_t name = 0;
  for (int i = 0; i < search.count; ++i) {
    CodeAddress& code = search.codes[i];
    if (code.file != 0 || !holds(*file, code.address)) continue;
    if (name == 0) name = name_of(*file);
    code.file = name;
    if (name != 0) code.offset = code.address - file->dlpi_addr;
  }
  return 0;
}

// Takes the loader's lock, so no lock of Cistern's may be held.
void find_files(CodeAddress* codes, int count) {
  for (int i = 0; i < count; ++i) {
    codes[i].file = 0;
    codes[i].offset = codes[i].address;
  }
  Search search{codes, count};
  dl_iterate_phdr(find_codes_in, &search);
}

// Whether the address is in Cistern's own code.
bool in_this_object(uint64_t address) {
  const auto first = reinterpret_cast<uint64_t>(&__ehdr_start);
  return address - first < reinterpret_cast<uint64_t>(&etext) - first;
}

// --- call sites ---

using alloc::Frame;
using alloc::kMostFrames;

constexpr int kOwnFrames = 16;  // of Cistern itself, at most
constexpr int kRoom = kMostFrames + kOwnFrames;

constinit std::atomic<bool> capturing_sites{false};
constinit alloc::CallSites sites{};

// The unwinder may call functions that are hooked, and so come back here.
class Once {
 public:
  Once() : first_(!this_thread.finds_site) { this_thread.finds_site = true; }
  ~Once() {
    if (first_) this_thread.finds_site = false;
  }
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;
  explicit operator bool() const { return first_; }

 private:
  const bool first_;
};

struct Stack {
  void* room[kRoom];
  void** addresses;  // after Cistern's own
  int count;
  PythonCall python[kMostFrames];
  int python_count;
};

// The lowest address of the stack; 1: not known. The main thread's stack grows.
[[gnu::cold, gnu::noinline]] uint64_t lowest_of_stack() {
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t bytes;
  if (gettid() == getpid() || pthread_getattr_np(pthread_self(), &attributes) != 0) return 1;
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<uint64_t>(low) | 1;
}

void leave_out_own_frames(Stack& stack) {
  int own = 0;
  while (own < stack.count && in_this_object(reinterpret_cast<uint64_t>(stack.room[own]))) ++own;
  stack.addresses = stack.room + own;
  stack.count = std::min(stack.count - own, kMostFrames);
}

// Only exact stacks get a number, so a stack that already has a number is right.
[[gnu::cold, gnu::noinline]] void look_again(Stack& stack, const LoadedFiles& loaded) {
  stack.count = exact_return_addresses(stack.room, kRoom, loaded);
  leave_out_own_frames(stack);
}

struct Hash {
  uint64_t value;
  void mix(uint64_t next) {
    value = (value ^ next) * 0x9E3779B97F4A7C15u;
    value ^= value >> 32;
  }
};

uint64_t hash_of(const Stack& stack, uint64_t changes) {
  Hash hash{changes};
  for (int i = 0; i < stack.count; ++i) {
    hash.mix(reinterpret_cast<uint64_t>(stack.addresses[i]));
  }
  for (int i = 0; i < stack.python_count; ++i) hash.mix(stack.python[i].identity());
  return hash.value;
}

// Numbers a stack that was not seen before, or not since a library was loaded or unloaded. A return
// address belongs to the instruction after the call, which may be another function's.
[[gnu::cold, gnu::noinline]] uint32_t new_site(const Stack& stack, uint64_t hash) {
  CodeAddress codes[kMostFrames + 1];
  for (int i = 0; i < stack.count; ++i) {
    codes[i].address = reinterpret_cast<uint64_t>(stack.addresses[i]) - 1;
  }
  codes[stack.count].address = stack.python_count == 0 ? 0 : address_in_python();
  find_files(codes, stack.count + 1);
  const uint32_t interpreter = codes[stack.count].file;

  Frame frames[kMostFrames];
  int count = 0, python_frame = 0;
  const auto add_python = [&] {
    for (; python_frame < stack.python_count && count < kMostFrames; ++python_frame) {
      frames[count++] = frame_of(stack.python[python_frame]);
    }
  };
  for (int i = 0; i < stack.count && count < kMostFrames; ++i) {
    if (codes[i].file == interpreter && interpreter != 0) add_python();
    if (count == kMostFrames) break;
    frames[count++] = {.file = codes[i].file, .function = 0, .line = 0, .offset = codes[i].offset};
  }
  add_python();
  return sites.add(hash, frames, count);
}

// The unwinder, and the names of a new site, need up to this much. The smallest stack of a thread
// is 16 KiB. A thread's bounds are queried once; a stack of another kind (sigaltstack, a
// coroutine's) is assumed to be large.
bool enough_stack() {
  constexpr uint64_t kWanted = 40 * 1024;
  const uint64_t here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  uint64_t& low = this_thread.stack_low;
  if (low == 0) [[unlikely]]
    low = lowest_of_stack();
  return here < low || here - low >= kWanted;
}

}  // namespace

void switch_sites_on() { capturing_sites.store(true, std::memory_order_relaxed); }

bool sites_on() { return capturing_sites.load(std::memory_order_relaxed); }

void load_unwinder() {
  const Once once;
  if (once) load_unwinder_once();
}

uint32_t capture_site() {
  if (!sites_on()) return 0;
  const Once once;
  const alloc::KeepErrno keep;
  const NoCancel whole;
  if (!once || !enough_stack()) return 0;
  const LoadedFiles loaded = loaded_files();
  Stack stack;
  stack.count = return_addresses(stack.room, kRoom);
  leave_out_own_frames(stack);
  if (stack.count <= 0) return 0;
  stack.python_count = python_calls(stack.python, kMostFrames, loaded.changes());
  uint64_t hash = hash_of(stack, loaded.changes());
  uint32_t known = sites.known(hash);
  if (known == 0 && may_be_outdated(loaded)) {
    look_again(stack, loaded);
    if (stack.count <= 0) return 0;
    hash = hash_of(stack, loaded.changes());
    known = sites.known(hash);
  }
  return known != 0 || sites.full() ? known : new_site(stack, hash);
}

uint32_t site_count() { return sites.count(); }

int site_frames(uint32_t site, Frame* out) { return sites.frames(site, out); }

void reset_sites_after_fork() {
  sites.reset_after_fork();
  names().reset_after_fork();
  reset_unwinder_after_fork();
  reset_descriptions_after_fork();
}

}  // namespace cistern::shim
