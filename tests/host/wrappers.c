// SPDX-License-Identifier: Apache-2.0
// For wrappers_test.py. As a library (WRAPPED names a function) a wrapper as tools have it: at its
// first call it allocates, and looks up the function that it wraps. Else a program that allocates
// in two threads and calls the functions itself.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#ifdef WRAPPED

#define WRAPS_clock_gettime \
  X(int, clock_gettime, (clockid_t clock, struct timespec * now), (clock, now))
#define WRAPS_mmap                                                                      \
  X(void*, mmap, (void* at, size_t bytes, int rights, int flags, int fd, off_t offset), \
    (at, bytes, rights, flags, fd, offset))
#define WRAPS_munmap X(int, munmap, (void* at, size_t bytes), (at, bytes))
#define WRAPS_madvise X(int, madvise, (void* at, size_t bytes, int advice), (at, bytes, advice))
#define WRAPS_mprotect X(int, mprotect, (void* at, size_t bytes, int rights), (at, bytes, rights))
#define WRAPS_sysconf X(long, sysconf, (int name), (name))
#define WRAPS_getrlimit \
  X(int, getrlimit, (__rlimit_resource_t kind, struct rlimit * limit), (kind, limit))
#define WRAPS_sched_getaffinity \
  X(int, sched_getaffinity, (pid_t thread, size_t bytes, cpu_set_t * set), (thread, bytes, set))
#define WRAPS_secure_getenv X(char*, secure_getenv, (const char* name), (name))
#define WRAPS_sysinfo X(int, sysinfo, (struct sysinfo * info), (info))
#define WRAPS_readlink \
  X(ssize_t, readlink, (const char* path, char* out, size_t bytes), (path, out, bytes))
#define WRAPS_read X(ssize_t, read, (int fd, void* out, size_t bytes), (fd, out, bytes))
#define WRAPS_close X(int, close, (int fd), (fd))
#define WRAPS_fstat X(int, fstat, (int fd, struct stat* out), (fd, out))
#define WRAPS_syscall                                                             \
  X(long, syscall, (long number, long a, long b, long c, long d, long e, long f), \
    (number, a, b, c, d, e, f))
#define WRAPS_open X(int, open, (const char* path, int flags, int mode), (path, flags, mode))

#define PASTE(a, b) a##b
#define CHOSEN(name) PASTE(WRAPS_, name)
// The headers may declare it otherwise, or with other attributes.
#define X(type, name, parameters, arguments)               \
  type wrapper parameters __asm__(#name);                  \
  type wrapper parameters {                                \
    static type(*next) parameters;                         \
    if (next == NULL) {                                    \
      char *small = malloc(300), *large = malloc(3 << 20); \
      if (small == NULL || large == NULL) abort();         \
      memset(small, 1, 300);                               \
      memset(large, 1, 3 << 20);                           \
      next = (type(*) parameters)dlsym(RTLD_NEXT, #name);  \
      free(large);                                         \
      free(small);                                         \
    }                                                      \
    return next arguments;                                 \
  }
CHOSEN(WRAPPED)

#else

static void* allocate(void* unused) {
  for (size_t bytes = 16; bytes < 64u << 20; bytes *= 2) {
    char* block = malloc(bytes);
    if (block == NULL) abort();
    block[0] = block[bytes - 1] = 1;
    free(block);
  }
  return unused;
}

int main(void) {
  pthread_t thread;
  struct timespec now;
  struct rlimit limit;
  struct sysinfo info;
  struct stat status;
  cpu_set_t set;
  char path[100];
  allocate(NULL);
  if (pthread_create(&thread, NULL, allocate, NULL) != 0) return 1;
  pthread_join(thread, NULL);
  char* page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0) return 2;
  if (madvise(page, 4096, MADV_DONTNEED) != 0 || munmap(page, 4096) != 0) return 3;
  if (clock_gettime(CLOCK_MONOTONIC, &now) != 0 || getrlimit(RLIMIT_AS, &limit) != 0) return 4;
  if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) < 1) return 5;
  if (sysconf(_SC_PAGESIZE) < 4096 || sysinfo(&info) != 0) return 6;
  if (secure_getenv("CISTERN_TEST_WORD") == NULL) return 7;
  if (readlink("/proc/self/exe", path, sizeof path) <= 0) return 8;
  const int fd = open("/proc/self/exe", O_RDONLY, 0);
  if (fd < 0 || fstat(fd, &status) != 0 || read(fd, path, 4) != 4 || close(fd) != 0) return 9;
  return 0;
}

#endif
