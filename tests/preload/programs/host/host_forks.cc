// SPDX-License-Identifier: Apache-2.0
// Children are forked while threads allocate and free; each child allocates and ends.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../watch_time.h"

namespace {

std::atomic<bool> over{false};

void churn(unsigned seed) {
  std::vector<char*> held(64, nullptr);
  for (unsigned i = seed; !over.load(); i = i * 1664525 + 1013904223) {
    char*& block = held[i % held.size()];
    std::free(block);
    const size_t bytes = i % 7 == 0 ? i % (size_t{4} << 20) : i % 5000;
    block = static_cast<char*>(std::malloc(bytes + 1));
    *block = 1;
  }
  for (char* block : held) std::free(block);
}

int child() {
  alarm(kHangsS);  // where it hangs, the parent learns of it
  for (size_t i = 1; i < 200; ++i) {
    char* block = static_cast<char*>(std::malloc(i * i * 20));
    if (block == nullptr) return 1;
    std::memset(block, 1, i * i * 20);
    std::free(block);
  }
  std::thread([] { std::free(std::malloc(100)); }).join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int forks = argc > 1 ? std::atoi(argv[1]) : 100;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(churn, i + 1);
  int bad = 0;
  for (int i = 0; i < forks; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(child());
    int status = -1;
    waitpid(pid, &status, 0);
    bad += status != 0;
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("%d of %d children did not end well\n", bad, forks);
  return 0;
}
