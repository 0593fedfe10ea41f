// SPDX-License-Identifier: Apache-2.0
// How much memory a program holds under one allocator, for host_peaks.py, which preloads it and
// compiles this:
//
//   host_peaks PROGRAM SECONDS
//       runs one of the programs below, makes no call for so long, and prints: the most memory it
//       had, what it has at the end, what of that is live (all in KiB), and the processor time it
//       took before the rest, in ms
//
// All memory of a block is written.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const size_t kMiB = (size_t)1 << 20;

static void fail(const char* what) {
  fprintf(stderr, "host_peaks: error: %s\n", what);
  exit(1);
}

static char* block_of(size_t bytes) {
  char* block = malloc(bytes);
  if (block == NULL) fail("no memory");
  return memset(block, 1, bytes);
}

static uint64_t next_random(void) {  // xorshift64
  static uint64_t state = 88172645463325252u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

// --- programs: each returns the bytes it leaves live ---

static size_t blocks_freed(void) {
  enum { kBytes = 300 * 1024, kBlocks = 2730 };  // 800 MiB
  static char* blocks[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) blocks[i] = block_of(kBytes);
  for (size_t i = 0; i < kBlocks; ++i) free(blocks[i]);
  return 0;
}

static size_t growth(void) {
  char* block = NULL;
  for (size_t mib = 1; mib <= 1024; ++mib) {
    block = realloc(block, mib * kMiB);
    if (block == NULL) fail("no memory");
    memset(block + (mib - 1) * kMiB, 1, kMiB);
  }
  free(block);
  return 0;
}

// At most 480 MiB live, in blocks of 16 to 256 MiB.
static size_t large_blocks(void) {
  enum { kMost = 480, kSlots = 30 };
  char* blocks[kSlots];
  size_t sizes[kSlots], count = 0, live = 0;
  for (int i = 0; i < 60; ++i) {
    const size_t mib = 16 + next_random() % 241;
    while (live + mib > kMost) {
      const size_t out = next_random() % count;
      free(blocks[out]);
      live -= sizes[out];
      blocks[out] = blocks[--count];
      sizes[out] = sizes[count];
    }
    blocks[count] = block_of(mib * kMiB);
    sizes[count++] = mib;
    live += mib;
  }
  while (count > 0) free(blocks[--count]);
  return 0;
}

// A heap of many sizes, most of them small, that is dropped but for a block in fifty.
static size_t heap_dropped(void) {
  enum { kBlocks = 1 << 20 };
  static char* blocks[kBlocks];
  static uint32_t sizes[kBlocks];
  size_t count = 0, total = 0, left = 0;
  while (total < 600 * kMiB && count < kBlocks) {
    const size_t bytes = (size_t)16 << next_random() % (next_random() % 16 == 0 ? 15 : 7);
    blocks[count] = block_of(bytes);
    sizes[count++] = (uint32_t)bytes;
    total += bytes;
  }
  for (size_t i = 0; i < count; ++i) {
    if (sizes[i] <= 1024 && i % 50 == 0) {
      left += sizes[i];
    } else {
      free(blocks[i]);
    }
  }
  return left + count * (sizeof *blocks + sizeof *sizes);
}

// A table that grows and is rewritten, as a data base in memory: 64 MiB are live in the end.
static size_t table_rewritten(void) {
  enum { kRows = 1 << 16 };
  static char* rows[kRows];
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < kRows; ++i) {
      if (next_random() % 3 == 0) continue;
      free(rows[i]);
      rows[i] = block_of(16 + next_random() % 2032);
    }
  }
  size_t live = 0;
  for (size_t i = 0; i < kRows; ++i) live += rows[i] == NULL ? 0 : malloc_usable_size(rows[i]);
  return live;
}

// 400 MiB of blocks to 64 KiB, freed; the program then asks for memory to go back.
static size_t purged(void) {
  enum { kBlocks = 12800 };
  static char* blocks[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) blocks[i] = block_of(next_random() % 65536 + 1);
  for (size_t i = 0; i < kBlocks; ++i) free(blocks[i]);
  int (*control)(const char*, void*, size_t*, void*, size_t) =
      (int (*)(const char*, void*, size_t*, void*, size_t))dlsym(RTLD_DEFAULT, "mallctl");
  if (control != NULL) {
    control("thread.tcache.flush", NULL, NULL, NULL, 0);
    control("arena.4096.purge", NULL, NULL, NULL, 0);
  } else {
    malloc_trim(0);
  }
  return 0;
}

static const struct {
  const char* name;
  size_t (*run)(void);
} programs[] = {{"blocks", blocks_freed}, {"growth", growth},         {"large", large_blocks},
                {"heap", heap_dropped},   {"table", table_rewritten}, {"purged", purged}};

// --- figures ---

// No allocation, so that reading changes nothing.
static size_t kib_of(const char* name) {
  char text[4096];
  const int file = open("/proc/self/status", O_RDONLY);
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  text[length > 0 ? length : 0] = '\0';
  const char* line = strstr(text, name);
  if (line == NULL) fail("no such line in /proc/self/status");
  return strtoull(line + strlen(name), NULL, 10);
}

int main(int count, char** words) {
  if (count != 3) fail("usage: see host_peaks.c");
  for (size_t i = 0; i < sizeof programs / sizeof *programs; ++i) {
    if (strcmp(words[1], programs[i].name) != 0) continue;
    const size_t live = programs[i].run();
    struct timespec took;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &took);
    const struct timespec rest = {atoi(words[2]), 0};
    nanosleep(&rest, NULL);
    printf("%zu %zu %zu %.1f\n", kib_of("VmHWM:"), kib_of("VmRSS:"), live >> 10,
           (double)took.tv_sec * 1e3 + (double)took.tv_nsec / 1e6);
    return 0;
  }
  fail("no such program");
}
