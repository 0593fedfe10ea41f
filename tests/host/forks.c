// SPDX-License-Identifier: Apache-2.0
// For forks_test.py, which says by HANGS_S after how long something hangs. Compiled twice: as a
// library (LIBRARY), which allocates before each fork and is started before anybody has allocated,
// and as a program that needs it.
//
//   forks children        forks beside a thread that allocates
//   forks exits COUNT     processes that end while two of their threads fork; without handlers of
//                         their own (NO_HANDLERS), which the C library would take away meanwhile
//   forks unload LIBRARY  forks once the library, which has a handler, was loaded and unloaded
//   forks loads LIBRARY   registers a handler, which a thread that loads the library waits for
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kChildren = 50, kOfChild = 40, kOfProcess = 30 };

struct Forks {
  int before, in_parent, in_child;
};

// The compiler leaves out what nobody reads.
static void allocate(size_t bytes) {
  char* volatile block = malloc(bytes);
  free(block);
}

#ifdef LIBRARY

struct Forks forks_noticed;

static void prepare(void) {
  allocate(100000);
  ++forks_noticed.before;
}
static void in_parent(void) { ++forks_noticed.in_parent; }
static void in_child(void) { ++forks_noticed.in_child; }

// Of the program, which may have it.
__attribute__((weak)) void be_loaded(void);

__attribute__((constructor)) static void before_main(void) {
  if (getenv("NO_HANDLERS") == NULL) pthread_atfork(prepare, in_parent, in_child);
  if (be_loaded != NULL) be_loaded();
}

#else

extern struct Forks forks_noticed;

static void* allocates(void* unused) {
  for (size_t i = 0;; ++i) allocate(i % 5000);
  return unused;
}

// Whether the child could allocate, and so many of its handlers had run.
static int fork_one(size_t bytes, int handlers) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    alarm(HANGS_S);
    allocate(bytes);
    _exit(forks_noticed.in_child == handlers ? kOfChild : EXIT_FAILURE);
  }
  return child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == kOfChild;
}

static void* forks(void* unused) {
  for (size_t i = 0;; ++i) fork_one(100000 + i * 100, 0);
  return unused;
}

static pthread_t run(void* (*function)(void*)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, function, NULL) != 0) abort();
  return thread;
}

static void ends_meanwhile(int round) {
  alarm(HANGS_S);
  run(forks);
  run(forks);
  usleep(3000 + round * 137 % 5000);
  exit(kOfProcess);
}

static int exits(int count) {
  int well = 0, not_well = 0, status;
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // its processes' children become its own
  for (int i = 0; i < count; ++i) {
    const pid_t process = fork();
    if (process == 0) ends_meanwhile(i);
    for (pid_t ended; (ended = wait(&status)) > 0;) {
      const int wanted = ended == process ? kOfProcess : kOfChild;
      ++*(WIFEXITED(status) && WEXITSTATUS(status) == wanted ? &well : &not_well);
    }
  }
  printf("not well: %d\n", not_well);
  return well == 0;
}

static int waited_for, in_constructor;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void registers(void) {
  while (!__atomic_load_n(&in_constructor, __ATOMIC_ACQUIRE)) usleep(100);
  usleep(20000);  // the other thread waits for this one by now, with the loader's lock
  pthread_atfork(NULL, NULL, NULL);
}

void be_loaded(void) {
  if (!waited_for) return;
  __atomic_store_n(&in_constructor, 1, __ATOMIC_RELEASE);
  pthread_once(&once, registers);
}

static void* register_once(void* unused) {
  pthread_once(&once, registers);
  return unused;
}

static int loads(const char* library) {
  waited_for = 1;
  const pthread_t other = run(register_once);
  usleep(20000);  // it is about to register
  if (dlopen(library, RTLD_NOW) == NULL) return 1;
  pthread_join(other, NULL);
  return puts("loaded") < 0;
}

static int unload(const char* library) {
  void* loaded = dlopen(library, RTLD_NOW);
  if (loaded == NULL || dlclose(loaded) != 0) return 1;
  printf("forked: %d\n", fork_one(1000, 1));
  return 0;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  int well = 0;
  alarm(HANGS_S);
  if (strcmp(what, "exits") == 0) return exits(atoi(argv[2]));
  if (strcmp(what, "unload") == 0) return unload(argv[2]);
  if (strcmp(what, "loads") == 0) return loads(argv[2]);
  run(allocates);
  for (int i = 0; i < kChildren; ++i) well += fork_one(100000, 1);
  printf("%d of %d children; noticed before %d, in the parent %d, here %d\n", well, kChildren,
         forks_noticed.before, forks_noticed.in_parent, forks_noticed.in_child);
  return 0;
}

#endif
