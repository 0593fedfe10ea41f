/* SPDX-License-Identifier: Apache-2.0
 * For alone_test.py: a program of one thread that frees a lot and then makes a user namespace,
 * which only such a program may, forks, and does the same there. It also allocates before main.
 * Says what is left of 64 MiB that it freed in blocks of 32 KiB, with no call since. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBlocks = 2000, kBytes = 32 << 10 };

static long resident(void) {
  long all = 0, pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &all, &pages) != 2) abort();
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

static int tasks(void) {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  if (folder == NULL) abort();
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

static void burst(void) {
  static char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) blocks[i] = memset(malloc(kBytes), 1, kBytes);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
}

__attribute__((constructor)) static void before_main(void) { burst(); }

static void say(const char* who, long before) {
  burst();
  const int stays = resident() > before + (8 << 20);
  const int made = unshare(CLONE_NEWUSER);
  printf("%s: tasks %d, namespace %d, memory stays %d\n", who, tasks(), made, stays);
  fflush(stdout);
}

int main(void) {
  const long before = resident();
  const pid_t child = fork();
  if (child == 0) {
    say("child", before);
    _exit(0);
  }
  int status = 1;
  if (waitpid(child, &status, 0) != child || status != 0) return 1;
  say("parent", before);
  return 0;
}
