// SPDX-License-Identifier: Apache-2.0
// What is wrong with the settings is told once by a process that allocates, for its forks, too.
// The process is one of this program with a bad setting.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

void allocate() {
  for (size_t i = 1; i < 1000; ++i) std::free(std::memset(std::malloc(i * 50), 1, i * 50));
}

int with_bad_settings() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(allocate);
  for (std::thread& thread : threads) thread.join();
  if (fork() == 0) {
    allocate();
    _exit(0);
  }
  int status = 1;
  wait(&status);
  return status;
}

// Lines that name the setting, and others.
void count_lines(int end) {
  int told = 0, other = 0;
  std::FILE* text = fdopen(end, "r");
  char line[1024];
  while (std::fgets(line, sizeof line, text) != nullptr) {
    ++(std::strstr(line, "FLAGS_initial_cpu_memory_in_mb") != nullptr ? told : other);
  }
  std::printf("told %d times, other lines %d\n", told, other);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return with_bad_settings();
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv("FLAGS_initial_cpu_memory_in_mb", "many", 1);
    execl("/proc/self/exe", argv[0], "bad", nullptr);
    _exit(127);
  }
  close(ends[1]);
  count_lines(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  std::printf("ended with %d\n", status);
  return 0;
}
