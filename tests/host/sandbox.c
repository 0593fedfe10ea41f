// SPDX-License-Identifier: Apache-2.0
// For sandbox_test.py: a program that, once main begins, forbids itself all system calls but those
// that every malloc needs, and then takes its first chunks, small and large. Its status is 0, or
// the number of the call that was made all the same.
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kThreads = 4, kNoFilters = 250, kNoMemory = 251 };

static pthread_barrier_t started, locked_up, done;

static void refused(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)context;
  _exit(info->si_syscall);
}

#define ALLOWED(call)                                    \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

// All threads at once.
static int forbid(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOWED(mmap),
      ALLOWED(munmap),
      ALLOWED(mremap),
      ALLOWED(madvise),
      ALLOWED(mprotect),
      ALLOWED(futex),
      ALLOWED(getrandom),
      ALLOWED(exit_group),  // how the program ends
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)};
  const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
  sigaction(SIGSYS, &action, NULL);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static void allocate(void) {
  for (size_t bytes = 16; bytes <= 32u << 20; bytes *= 2) {
    char *block = malloc(bytes), *zeroed = calloc(1, bytes / 2);
    if (block == NULL || zeroed == NULL) _exit(kNoMemory);
    block[0] = block[bytes - 1] = 1;
    block = realloc(block, bytes + bytes / 2);
    if (block == NULL) _exit(kNoMemory);
    free(zeroed);
    free(block);
  }
  void* small[2000];
  for (int i = 0; i < 2000; ++i) small[i] = malloc((size_t)i * 50);
  for (int i = 0; i < 2000; ++i) free(small[i]);
}

static void* work(void* unused) {
  pthread_barrier_wait(&started);
  pthread_barrier_wait(&locked_up);
  allocate();
  pthread_barrier_wait(&done);
  for (;;) pthread_barrier_wait(&done);
  return unused;
}

// With an argument in threads, too: their beginning needs other calls, so they wait until then, and
// their beginning allocates, which the program alone does not do before.
int main(int count, char** words) {
  (void)words;
  if (count == 1) {
    if (forbid() != 0) _exit(kNoFilters);
    allocate();
    return 0;
  }
  pthread_t thread;
  pthread_barrier_init(&started, NULL, kThreads + 1);
  pthread_barrier_init(&locked_up, NULL, kThreads + 1);
  pthread_barrier_init(&done, NULL, kThreads + 1);
  for (int i = 0; i < kThreads; ++i) {
    if (pthread_create(&thread, NULL, work, NULL) != 0) return kNoMemory;
  }
  pthread_barrier_wait(&started);
  if (forbid() != 0) _exit(kNoFilters);
  allocate();
  pthread_barrier_wait(&locked_up);
  pthread_barrier_wait(&done);
  return 0;
}
