/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes which basic blocks of an object ran: gcc's -fsanitize-coverage=trace-pc calls this at the
 * start of each. The notes are a file in the folder that REACH_MAPS names, called by the object's
 * size in memory, with a byte for each place where a call may be; reach.py makes it and reads it.
 * Nothing is written where there is no such file.
 *
 * Any thread may call it, in a signal handler, under malloc or before the process is set up; what a
 * process notes stays when it is killed. System calls are made directly, as the functions for them
 * may be those of the object itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LENGTH_OF_A_CALL 5

extern char** environ;
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static unsigned char* notes;
static int none; /* there is nothing to note in */

static unsigned char* open_notes(void) {
  if (environ == NULL || __atomic_load_n(&none, __ATOMIC_RELAXED)) return NULL;
  const char* folder = getenv("REACH_MAPS");
  const size_t size = (size_t)(_end - __ehdr_start);
  char name[4096];
  void* made = MAP_FAILED;
  const int error = errno;
  if (folder != NULL && snprintf(name, sizeof name, "%s/%zu", folder, size) < (int)sizeof name) {
    const long file = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC);
    if (file >= 0) {
      made = (void*)syscall(SYS_mmap, NULL, size / LENGTH_OF_A_CALL + 1, PROT_READ | PROT_WRITE,
                            MAP_SHARED, file, 0L);
      syscall(SYS_close, file);
    }
  }
  errno = error;
  if (made == MAP_FAILED) {
    __atomic_store_n(&none, 1, __ATOMIC_RELAXED);
    return NULL;
  }
  __atomic_store_n(&notes, made, __ATOMIC_RELEASE);
  return made;
}

__attribute__((visibility("hidden"))) void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
  unsigned char* at = __atomic_load_n(&notes, __ATOMIC_ACQUIRE);
  if (at == NULL) at = open_notes();
  if (at != NULL)
    at[((const char*)__builtin_return_address(0) - __ehdr_start) / LENGTH_OF_A_CALL] = 1;
}
