// SPDX-License-Identifier: Apache-2.0
// Four threads that allocate start children by vfork, posix_spawn and clone: each child ends well.
// host_children WAY CHILDREN, so many of each thread.
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../watch_time.h"

namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr int kGood = 7;

// What a thread holds while it starts children: some of it is freed and allocated before each.
class Churn {
 public:
  explicit Churn(unsigned seed) : random_(seed) {}
  ~Churn() {
    for (char* block : held_) std::free(block);
  }
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;

  void turn() {
    for (int i = 0; i < 40; ++i) {
      random_ = random_ * 1664525 + 1013904223;
      char*& block = held_[random_ >> 26];
      std::free(block);
      const size_t bytes = 1 + (random_ % 13 == 0 ? random_ % (size_t{3} << 20) : random_ % 5000);
      block = static_cast<char*>(std::malloc(bytes));
      *block = block[bytes - 1] = 1;
    }
  }

 private:
  unsigned random_;
  char* held_[64] = {};
};

pid_t by_spawn() {
  char shell[] = "/bin/sh", option[] = "-c", words[] = "exit 7";
  char* arguments[] = {shell, option, words, nullptr};
  pid_t child = -1;
  return posix_spawn(&child, shell, nullptr, nullptr, arguments, environ) == 0 ? child : -1;
}

// The child shares the parent's memory and may call exec and _exit only. Every other one runs a
// program.
pid_t by_vfork(int i) {
  char shell[] = "/bin/sh", option[] = "-c", words[] = "exit 7";
  char* arguments[] = {shell, option, words, nullptr};
  const pid_t child = vfork();  // NOLINT: what is tested
  if (child != 0) return child;
  if (i % 2 == 0) execve(shell, arguments, environ);
  _exit(kGood);
}

// A copy of the process, as of fork(), but without the handlers that libraries have registered for
// it: so the child may not allocate (POSIX), and what it has is the parent's.
int child_of_clone(void* block) {
  alarm(kHangsS);  // where it hangs, the parent learns of it
  auto* text = static_cast<char*>(block);
  std::memset(text, 5, 100'000);
  return text[99'999] == 5 ? kGood : 1;
}

pid_t by_clone(char* block) {
  static thread_local char stack[kStackBytes];
  return clone(child_of_clone, stack + kStackBytes, SIGCHLD, block);
}

pid_t start(const std::string& way, int i, char* block) {
  if (way == "spawn") return by_spawn();
  if (way == "vfork") return by_vfork(i);
  return by_clone(block);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  const int children = argc > 2 ? std::atoi(argv[2]) : 1;
  std::atomic<int> bad{0};
  const auto work = [&](unsigned seed) {
    Churn churn(seed);
    auto* block = static_cast<char*>(std::malloc(100'000));
    for (int i = 0; i < children; ++i) {
      churn.turn();
      std::memset(block, 3, 100'000);
      const pid_t child = start(way, i, block);
      int status = -1;
      bad += child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != kGood;
      bad += block[99'999] != 3;
    }
    std::free(block);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i <= 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  std::printf("%d of %d children did not end well\n", bad.load(), 4 * children);
  return 0;
}
