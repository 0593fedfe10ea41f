// SPDX-License-Identifier: Apache-2.0
// What one allocator takes, for host_memory.py, which preloads it and compiles this:
//
//   host_bench pairs ORDER LOW HIGH LIVE PAIRS THREADS
//       ns of processor time an allocation and its free take together, sizes from LOW to HIGH bytes
//       (as many of each order of magnitude), LIVE blocks of each thread at a time. ORDER: lifo,
//       the last allocated is freed first; random; handed, each thread frees the next one's, at
//       random (THREADS > 1: ns of wall-clock time)
//   host_bench start ROUNDS OBJECT...
//       ms that `true` takes with each object preloaded ("-": none) in turns, a line each round
//   host_bench resident
//       the most memory this process had, in KiB: no more than the C library needed at its start
//
// The first byte of each block is written.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMostThreads = 64, kSizes = 4096, kMostLive = 1 << 16 };

static double now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void fail(const char* what) {
  fprintf(stderr, "host_bench: error: %s\n", what);
  exit(1);
}

// --- pairs ---

static size_t sizes[kSizes];  // drawn beforehand: drawing is not measured
static size_t live, pairs;
static unsigned threads;
static const char* order;
static _Atomic(char*) blocks[kMostThreads][kMostLive];
static pthread_barrier_t begin;

static uint64_t next_random(uint64_t* state) {  // xorshift64
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void draw_sizes(size_t low, size_t high) {
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i < kSizes; ++i) {
    size_t from = low;  // one of the doublings, evenly, and a size of it
    int doublings = 0;
    for (size_t at = low; at < high; at *= 2) ++doublings;
    for (uint64_t n = next_random(&state) % (uint64_t)doublings; n > 0; --n) from *= 2;
    const size_t size = from + (size_t)next_random(&state) % (from + 1);
    sizes[i] = size < high ? size : high;
  }
}

static char* allocate(size_t i) {
  char* block = malloc(sizes[i % kSizes]);
  if (block == NULL) fail("no memory");
  *block = 1;
  return block;
}

static void last_first(_Atomic(char*)* mine) {
  for (size_t i = 0; i < pairs;) {
    const size_t first = i;
    for (size_t n = 0; n < live; ++n) {
      atomic_store_explicit(&mine[n], allocate(first + n), memory_order_relaxed);
    }
    for (size_t n = live; n-- > 0; ++i) free(atomic_load_explicit(&mine[n], memory_order_relaxed));
  }
}

static void at_random(_Atomic(char*)* others, uint64_t state) {
  for (size_t i = 0; i < pairs; ++i) {
    _Atomic(char*)* place = &others[next_random(&state) % live];
    // What is not shared needs no exchange, which would be a good part of what is measured.
    char* old = atomic_load_explicit(place, memory_order_relaxed);
    free(old);
    atomic_store_explicit(place, allocate(i), memory_order_relaxed);
  }
}

static void handed(_Atomic(char*)* from, _Atomic(char*)* to, uint64_t state) {
  for (size_t i = 0; i < pairs; ++i) {
    const uint64_t drawn = next_random(&state);
    free(atomic_exchange(&from[drawn % live], NULL));
    free(atomic_exchange(&to[(drawn >> 32) % live], allocate(i)));
  }
}

static void* work(void* number) {
  const size_t thread = (size_t)number;
  const uint64_t state = 0x9e3779b97f4a7c15u * (thread + 1);
  pthread_barrier_wait(&begin);
  if (strcmp(order, "lifo") == 0) {
    last_first(blocks[thread]);
  } else if (strcmp(order, "random") == 0) {
    at_random(blocks[thread], state);
  } else {
    handed(blocks[(thread + 1) % threads], blocks[thread], state);
  }
  return NULL;
}

static void time_pairs(char** words) {
  order = words[0];
  draw_sizes(strtoull(words[1], NULL, 10), strtoull(words[2], NULL, 10));
  live = strtoull(words[3], NULL, 10);
  pairs = strtoull(words[4], NULL, 10);
  threads = (unsigned)atoi(words[5]);
  if (live == 0 || live > kMostLive || threads == 0 || threads > kMostThreads) fail("bad number");
  const clockid_t clock = threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
  pthread_barrier_init(&begin, NULL, threads);
  pthread_t all[kMostThreads];
  double took = 0;
  for (int warm = 1; warm >= 0; --warm) {  // the second time counts
    const double start = now_ns(clock);
    for (size_t i = 1; i < threads; ++i) pthread_create(&all[i], NULL, work, (void*)i);
    work(NULL);
    for (size_t i = 1; i < threads; ++i) pthread_join(all[i], NULL);
    took = now_ns(clock) - start;
  }
  const size_t done = (pairs + live - 1) / live * live;
  printf("%.3f\n", took / (double)(strcmp(order, "lifo") == 0 ? done : pairs));
}

// --- starts ---

static double start_true(const char* object) {
  static char preload[4096];
  snprintf(preload, sizeof preload, "LD_PRELOAD=%s", object);
  char* arguments[] = {"true", NULL};
  char* environment[] = {strcmp(object, "-") == 0 ? NULL : preload, NULL};
  const double start = now_ns(CLOCK_MONOTONIC);
  pid_t child;
  int status = -1;
  if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environment) != 0) fail("no child");
  waitpid(child, &status, 0);
  if (status != 0) fail("true did not end well");
  return (now_ns(CLOCK_MONOTONIC) - start) / 1e6;
}

static void time_starts(int rounds, char** objects, int count) {
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < count; ++i) {
      printf("%.4f%c", start_true(objects[i]), i + 1 < count ? ' ' : '\n');
    }
  }
}

// No allocation, so that it is the start alone.
static void tell_resident(void) {
  char text[4096];
  const int file = open("/proc/self/status", O_RDONLY);
  const ssize_t length = read(file, text, sizeof text - 1);
  text[length > 0 ? length : 0] = '\0';
  const char* line = strstr(text, "VmHWM:");
  if (line == NULL) fail("no VmHWM in /proc/self/status");
  const char* end = strchr(line, '\n');
  if (write(STDOUT_FILENO, line, (size_t)(end - line + 1)) < 0) fail("cannot write");
}

int main(int count, char** words) {
  if (count == 8 && strcmp(words[1], "pairs") == 0) {
    time_pairs(words + 2);
  } else if (count > 3 && strcmp(words[1], "start") == 0) {
    time_starts(atoi(words[2]), words + 3, count - 3);
  } else if (count == 2 && strcmp(words[1], "resident") == 0) {
    tell_resident();
  } else {
    fail("usage: see host_bench.c");
  }
  return 0;
}
