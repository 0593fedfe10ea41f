// SPDX-License-Identifier: Apache-2.0
// A forked child can open libraries, whatever the threads of its parent did just then.

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "../driver_codes.h"
#include "../watch_time.h"

namespace {

std::atomic<bool> g_over{false};

void synchronise() {
  use_device(0);
  while (!g_over) cuCtxSynchronize();
}

// One that hangs ends by a signal. A minute is far more than it takes on any machine.
int open_library() {
  alarm(60);
  return dlopen("libutil.so.1", RTLD_NOW) == nullptr ? 1 : 0;
}

}  // namespace

int main() {
  end_if_it_hangs();
  use_device(0);
  std::thread synchronising(synchronise);
  int well = 0;
  for (int i = 0; i < 300; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(open_library());
    int status = 1;
    waitpid(child, &status, 0);
    well += status == 0;
    if (WIFSIGNALED(status)) break;
  }
  g_over = true;
  synchronising.join();
  std::printf("children that ended well: %d\n", well);
  return 0;
}
