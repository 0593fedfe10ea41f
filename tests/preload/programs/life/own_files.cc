// SPDX-License-Identifier: Apache-2.0
// Descriptors closed and opened again, pipes without a reader: nothing gets in, nothing dies.
// A program that manages its descriptors itself. "close": it closes all it does not know and opens
// a file of its own under every number; "pipe": the pipe under kPipe loses its reader while the
// program runs; "unread": it has none. Its file must stay its own, and it must neither wait nor
// die.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "../driver_codes.h"

namespace {

void work() {
  CUdeviceptr block = 0;
  use_device(0);
  SAY(cuMemAlloc(&block, 1000));
  SAY(cuMemFree(block));
  SAY(cuMemAlloc(&block, size_t{1} << 50));
}

// Also what is written while the process ends counts, so another one looks.
[[noreturn]] void close_and_open() {
  constexpr int kFirst = 3, kLast = 300;
  const pid_t child = fork();
  if (child == 0) {
    work();
    for (int fd = kFirst; fd <= kLast; ++fd) close(fd);
    while (open("own", O_RDWR | O_CREAT | O_APPEND, 0600) < kLast) {
    }
    work();
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  struct stat own;
  const bool there = stat("own", &own) == 0;
  std::printf("child ended with %d, own file %d, holds %lld bytes\n", status, there,
              there ? static_cast<long long>(own.st_size) : -1);
  std::_Exit(0);  // says nothing of its own report: it used no CUDA
}

// Its reader; what is written to kPipe goes there.
int open_pipe() {
  constexpr int kPipe = 50;  // as the expectation names it
  int ends[2];
  if (pipe(ends) != 0 || dup2(ends[1], kPipe) != kPipe) std::_Exit(1);
  return ends[0];
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // two processes write to it
  const char* way = argc > 1 ? argv[1] : "close";
  if (std::strcmp(way, "close") == 0) close_and_open();
  const int reader = open_pipe();
  if (std::strcmp(way, "unread") == 0) close(reader);
  work();
  if (std::strcmp(way, "pipe") == 0) close(reader);
  work();
  return 0;
}
