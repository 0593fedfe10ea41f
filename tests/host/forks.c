// SPDX-License-Identifier: Apache-2.0
// For forks_test.py. Compiled twice: as a library (LIBRARY), which allocates before each fork and
// is started before anybody has allocated, and as a program that needs it.
//
//   forks children      forks beside a thread that allocates
//   forks exits COUNT   processes that end while two of their threads fork
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kChildren = 50, kSeconds = 20, kOfChild = 40, kOfProcess = 30 };

// The compiler leaves out what nobody reads.
static void allocate(size_t bytes) {
  char* volatile block = malloc(bytes);
  free(block);
}

#ifdef LIBRARY

static void prepare(void) { allocate(100000); }

int forks_noticed = 0;
__attribute__((constructor)) static void before_main(void) {
  pthread_atfork(prepare, NULL, NULL);
  forks_noticed = 1;
}

#else

extern int forks_noticed;

static void* allocates(void* unused) {
  for (size_t i = 0;; ++i) allocate(i % 5000);
  return unused;
}

// Whether the child could allocate.
static int fork_one(size_t bytes) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSeconds);
    allocate(bytes);
    _exit(kOfChild);
  }
  return child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == kOfChild;
}

static void* forks(void* unused) {
  for (size_t i = 0;; ++i) fork_one(100000 + i * 100);
  return unused;
}

static void run(void* (*function)(void*)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, function, NULL) != 0) abort();
}

static void ends_meanwhile(int round) {
  alarm(kSeconds);
  run(forks);
  run(forks);
  usleep(3000 + round * 137 % 5000);
  exit(kOfProcess);
}

int main(int argc, char** argv) {
  int well = 0, not_well = 0, status;
  if (argc < 3) {
    alarm(kSeconds);
    run(allocates);
    for (int i = 0; i < kChildren; ++i) well += fork_one(100000);
    printf("%d of %d children, forks noticed: %d\n", well, kChildren, forks_noticed);
    return 0;
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // its processes' children become its own
  for (int i = 0, count = atoi(argv[2]); i < count; ++i) {
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

#endif
