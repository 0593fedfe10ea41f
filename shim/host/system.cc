// SPDX-License-Identifier: Apache-2.0
// System calls of malloc, and of all other code in libcistern.so, enter the kernel directly. A call
// by name would reach the wrapper of another preloaded library. If that wrapper allocates when it
// is first called, it would re-enter the malloc that called it. The linker uses these definitions
// for jemalloc's calls as well; none is exported. Like the C library's they set errno. Except for
// the clock, they do nothing but their system call. Any thread.
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <string_view>

#include "shim/entry/loader.h"

// Set if a test preloads a system of its own (tests/preload/programs/fixtures/refuses.cc), which
// answers as the kernel does. Null in every other process.
extern "C" __attribute__((weak)) long cistern_system_call(long number, long a, long b, long c,
                                                          long d, long e, long f);

namespace cistern::shim {
namespace {

// Returns 0, or the negative error number, as the kernel does.
using Clock = int (*)(clockid_t, timespec*);

#if defined(__x86_64__)
constexpr const char* kKernelsClock = "__vdso_clock_gettime";

long enter_kernel(long number, long a, long b, long c, long d, long e, long f) {
  long result = number;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
constexpr const char* kKernelsClock = "__kernel_clock_gettime";

long enter_kernel(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
}
#endif

long enter(long number, long a, long b, long c, long d, long e, long f) {
  if (cistern_system_call != nullptr) [[unlikely]]
    return cistern_system_call(number, a, b, c, d, e, f);
  return enter_kernel(number, a, b, c, d, e, f);
}

long answer(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

template <typename... Arguments>
long ask(long number, Arguments... arguments) {
  long words[6] = {(long)arguments...};  // NOLINT(google-readability-casting): pointers, too
  return answer(enter(number, words[0], words[1], words[2], words[3], words[4], words[5]));
}

int clock_by_call(clockid_t clock, timespec* now) {
  return static_cast<int>(enter(SYS_clock_gettime, clock, reinterpret_cast<long>(now), 0, 0, 0, 0));
}

// The kernel's own function needs no system call. It may be missing, for example under valgrind.
Clock find_clock() {
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(getauxval(AT_SYSINFO_EHDR));
  if (header == nullptr) return clock_by_call;
  const auto base = reinterpret_cast<ElfW(Addr)>(header);
  const auto* parts = reinterpret_cast<const ElfW(Phdr)*>(base + header->e_phoff);
  link_map object{};
  object.l_addr = base;
  for (int i = 0; i < header->e_phnum; ++i) {
    if (parts[i].p_type == PT_LOAD) object.l_addr = base + parts[i].p_offset - parts[i].p_vaddr;
    if (parts[i].p_type == PT_DYNAMIC) {
      object.l_ld = reinterpret_cast<ElfW(Dyn)*>(base + parts[i].p_offset);
    }
  }
  void* found = object.l_ld == nullptr ? nullptr : definition_in(&object, kKernelsClock);
  return found == nullptr ? clock_by_call : reinterpret_cast<Clock>(found);
}

constinit std::atomic<Clock> known_clock{nullptr};

}  // namespace
}  // namespace cistern::shim

extern "C" {

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  return answer(enter(number, words[0], words[1], words[2], words[3], words[4], words[5]));
}

void* mmap(void* address, size_t bytes, int rights, int flags, int fd, off_t at) noexcept {
  return reinterpret_cast<void*>(ask(SYS_mmap, address, bytes, rights, flags, fd, at));
}

int munmap(void* address, size_t bytes) noexcept {
  return static_cast<int>(ask(SYS_munmap, address, bytes));
}

int madvise(void* address, size_t bytes, int advice) noexcept {
  return static_cast<int>(ask(SYS_madvise, address, bytes, advice));
}

int mprotect(void* address, size_t bytes, int rights) noexcept {
  return static_cast<int>(ask(SYS_mprotect, address, bytes, rights));
}

void* mremap(void* address, size_t old_bytes, size_t bytes, int flags, ...) noexcept {
  va_list list;
  va_start(list, flags);
  void* wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(list, void*) : nullptr;
  va_end(list);
  return reinterpret_cast<void*>(ask(SYS_mremap, address, old_bytes, bytes, flags, wanted));
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  Clock function = known_clock.load(std::memory_order_relaxed);
  if (function == nullptr) [[unlikely]] {
    function = find_clock();
    known_clock.store(function, std::memory_order_relaxed);
  }
  return static_cast<int>(answer(function(clock, now)));
}

int getrlimit(__rlimit_resource_t kind, rlimit* limit) noexcept {
  return static_cast<int>(ask(SYS_prlimit64, 0, kind, nullptr, limit));
}

int sysinfo(struct sysinfo* info) noexcept { return static_cast<int>(ask(SYS_sysinfo, info)); }

int sched_yield() noexcept { return static_cast<int>(ask(SYS_sched_yield)); }

// The kernel writes no more words than it needs for its processors, and returns their size.
int sched_getaffinity(pid_t thread, size_t bytes, cpu_set_t* out) noexcept {
  const long written = ask(SYS_sched_getaffinity, thread, bytes, out);
  if (written < 0) return -1;
  memset(reinterpret_cast<char*>(out) + written, 0, bytes - static_cast<size_t>(written));
  return 0;
}

// The names that jemalloc uses; the processors only if the user wants one arena for each.
long sysconf(int name) noexcept {
  switch (name) {
    case _SC_PAGESIZE:
      return static_cast<long>(getauxval(AT_PAGESZ));
    case _SC_NPROCESSORS_ONLN:
      return get_nprocs();
    case _SC_NPROCESSORS_CONF:
      return get_nprocs_conf();
    default:
      errno = EINVAL;
      return -1;
  }
}

ssize_t readlink(const char* path, char* out, size_t bytes) noexcept {
  return ask(SYS_readlinkat, AT_FDCWD, path, out, bytes);
}

// As the C library's.
char* secure_getenv(const char* name) noexcept {
  if (environ == nullptr || getauxval(AT_SECURE) != 0) return nullptr;
  const std::string_view wanted = name;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool same = strncmp(*entry, name, wanted.size()) == 0;
    if (same && (*entry)[wanted.size()] == '=') return *entry + wanted.size() + 1;
  }
  return nullptr;
}

}  // extern "C"
