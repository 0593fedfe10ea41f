// SPDX-License-Identifier: Apache-2.0
// What a program frees goes back to the system a while later, although it allocates nothing then.
#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../test_clock.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;

size_t resident() {
  size_t all = 0, pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (std::fscanf(file, "%zu %zu", &all, &pages) != 2) pages = 0;
  std::fclose(file);
  return pages * 4096;
}

// Within three seconds by the clock.
bool falls_to(size_t bytes) {
  test_clock::stop();
  for (int i = 0; i < 300 && resident() > bytes; ++i) {
    test_clock::live_through(/*ms=*/10, /*steps=*/1);
  }
  test_clock::let_go();
  return resident() <= bytes;
}

void burst() {
  const size_t before = resident();
  std::vector<char*> blocks(2000);
  for (char*& block : blocks) {
    block = static_cast<char*>(std::malloc(32 << 10));
    std::memset(block, 1, 32 << 10);
  }
  std::printf("held: %s\n", resident() > before + 60 * kMiB ? "yes" : "NO");
  test_clock::stop();
  for (char* block : blocks) std::free(block);
  std::printf("kept for a while: %s\n", resident() > before + 32 * kMiB ? "yes" : "NO");
  std::printf("went back: %s\n", falls_to(before + 8 * kMiB) ? "yes" : "NO");
  // And is there again.
  for (char*& block : blocks) {
    block = static_cast<char*>(std::malloc(32 << 10));
    std::memset(block, 2, 32 << 10);
  }
  int wrong = 0;
  for (char* block : blocks) wrong += block[100] != 2;
  std::printf("wrong: %d\n", wrong);
}

// A loader: each thread frees what others allocated; sizes to 4 MiB, most of them small. What is
// live at the end is a fifth of a GiB.
void loader(size_t operations) {
  constexpr size_t kSlots = 4096;
  static std::atomic<char*> slots[kSlots];
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < operations / 4; ++i) {
      const size_t bytes = size_t{16} << random() % (random() % 16 == 0 ? 19 : 12);
      auto* block = static_cast<char*>(std::malloc(bytes));
      for (size_t at = 0; at < bytes; at += 4096) block[at] = 1;
      std::free(slots[random() % kSlots].exchange(block));
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i + 1);
  for (std::thread& thread : threads) thread.join();
  size_t live = 0;
  for (auto& slot : slots) live += malloc_usable_size(slot.load());
  const bool ok = falls_to(live + live / 5 + 8 * kMiB);
  std::fprintf(stdout, "%s\n",
               ok ? "at most 1.2 times what is live" : "MORE than 1.2 times what is live");
  if (std::getenv("SAY") != nullptr) {
    std::printf("live %zu MiB, resident %zu MiB\n", live / kMiB, resident() / kMiB);
  }
}

// The C library frees what it remembers of exit handlers with the lock held that a new handler
// needs.
void exit_handlers() {
  for (int i = 0; i < 20'000; ++i) std::atexit([] {});
  std::puts("ends");
}

// It frees a thread's storage with the lock held that a new thread needs, once it keeps 40 MiB of
// stacks.
void thread_ends() {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 12; ++i) {
      threads.emplace_back([] {
        for (int k = 0; k < 50; ++k) std::free(std::memset(std::malloc(40'000), 1, 40'000));
      });
    }
    for (std::thread& thread : threads) thread.join();
    test_clock::live_through(/*ms=*/300, /*steps=*/30);
  }
  std::puts("ended");
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (std::strcmp(what, "exit-handlers") == 0) exit_handlers();
  if (std::strcmp(what, "thread-ends") == 0) thread_ends();
  if (std::strcmp(what, "burst") == 0) burst();
  if (std::strcmp(what, "burst-with-cuda") == 0) {
    use_device(0);
    burst();
  }
  if (std::strcmp(what, "loader") == 0) loader(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  return 0;
}
