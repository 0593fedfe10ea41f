// SPDX-License-Identifier: Apache-2.0
// For start_test.py: whether blocks come from the pool of host memory, by whom and when they may be
// asked for. Compiled twice: as a library (LIBRARY), whose constructor runs before that of any
// preloaded object, and as a program that needs it.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kThreads = 6, kBlockBytes = 100 << 10 };

struct Blocks {
  char* of_thread[kThreads];
  char* own;
};

#ifdef LIBRARY

static pthread_barrier_t all_have_one;

// Each has its block while the others ask for theirs: they use different arenas.
static void* take(void* place) {
  *(char**)place = malloc(kBlockBytes);
  pthread_barrier_wait(&all_have_one);
  return NULL;
}

void take_blocks(struct Blocks* blocks) {
  pthread_t threads[kThreads];
  pthread_barrier_init(&all_have_one, NULL, kThreads);
  blocks->own = malloc(kBlockBytes);
  for (int i = 0; i < kThreads; ++i) {
    if (pthread_create(&threads[i], NULL, take, &blocks->of_thread[i]) != 0) abort();
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

struct Blocks of_constructor;
__attribute__((constructor)) static void before_main(void) { take_blocks(&of_constructor); }

#else

void take_blocks(struct Blocks* blocks);
extern struct Blocks of_constructor;

// A chunk's usable pages come before many that are reserved.
static int in_chunk(const char* block) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512], rights[5];
  uintptr_t start, end, end_before = 0;
  int found = 0, is_next = 0;
  while (fgets(line, sizeof line, maps) != NULL) {
    if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) != 3) continue;
    if (is_next) {
      found = start == end_before && rights[0] == '-' && end - start >= 8u << 20;
      break;
    }
    is_next = (uintptr_t)block >= start && (uintptr_t)block < end;
    end_before = end;
  }
  fclose(maps);
  return found;
}

static void tell(const char* when, const struct Blocks* blocks) {
  int of_threads = 0;
  for (int i = 0; i < kThreads; ++i) of_threads += in_chunk(blocks->of_thread[i]);
  printf("%s: %d of %d threads, own %d\n", when, of_threads, kThreads, in_chunk(blocks->own));
}

int main(void) {
  struct Blocks of_main;
  take_blocks(&of_main);
  tell("constructor", &of_constructor);
  tell("main", &of_main);
  return 0;
}

#endif
