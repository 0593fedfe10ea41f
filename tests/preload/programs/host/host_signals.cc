// SPDX-License-Identifier: Apache-2.0
// Signal handlers that interrupt each thread all the time change no result of malloc, nor errno.
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

std::atomic<unsigned> interruptions{0};

// It leaves errno as it was, as handlers must. Without SA_RESTART: what it interrupts ends with
// EINTR, where it can.
void interrupt(int) {
  const int saved = errno;
  errno = close(-1);
  interruptions.fetch_add(1, std::memory_order_relaxed);
  errno = saved;
}

// A timer that interrupts the calling thread.
class Storm {
 public:
  Storm() {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGALRM;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    const itimerspec each = {{0, 100'000}, {0, 100'000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0 ||
        timer_settime(timer_, 0, &each, nullptr) != 0) {
      std::puts("NO TIMER");
    }
  }
  ~Storm() { timer_delete(timer_); }
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

 private:
  timer_t timer_{};
};

// Hidden from the compiler, which else leaves the calls out.
template <typename T>
T opaque(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

constexpr int kMark = 17;

// How many promises were broken.
class Checked {
 public:
  void turn(unsigned random) {
    Block& block = held_[random >> 26];
    if (block.start != nullptr) broken_ += block.start[0] != block.mark || end(block) != block.mark;
    errno = kMark;
    std::free(block.start);
    broken_ += errno != kMark;
    block.bytes = 1 + (random % 11 == 0 ? random % (size_t{2} << 20) : random % 3000);
    block.mark = static_cast<uint8_t>(random >> 8);
    block.start = random % 3 == 0 ? static_cast<uint8_t*>(std::calloc(1, block.bytes))
                                  : static_cast<uint8_t*>(std::malloc(block.bytes));
    if (block.start == nullptr) {
      ++broken_;
      return;
    }
    if (random % 3 == 0) broken_ += block.start[0] != 0 || end(block) != 0;
    block.start[0] = end(block) = block.mark;
    if (random % 5 != 0) return;
    auto* moved = static_cast<uint8_t*>(std::realloc(block.start, block.bytes * 2));
    broken_ += moved == nullptr || moved[0] != block.mark || moved[block.bytes - 1] != block.mark;
    block.start = moved;
    block.bytes *= 2;
    end(block) = block.mark;
    errno = 0;
    broken_ += std::malloc(opaque(SIZE_MAX / 2)) != nullptr || errno != ENOMEM;
  }

  int end() {
    for (Block& block : held_) std::free(block.start);
    return broken_;
  }

 private:
  struct Block {
    uint8_t* start = nullptr;
    size_t bytes = 0;
    uint8_t mark = 0;
  };
  static uint8_t& end(Block& block) { return block.start[block.bytes - 1]; }

  Block held_[64];
  int broken_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 1;
  struct sigaction action {};
  action.sa_handler = interrupt;
  sigaction(SIGALRM, &action, nullptr);
  std::atomic<int> broken{0};
  const auto work = [&](unsigned random) {
    const Storm storm;
    Checked blocks;
    for (int i = 0; i < turns; ++i) {
      random = random * 1664525 + 1013904223;
      blocks.turn(random);
    }
    broken += blocks.end();
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i <= 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  std::printf("promises broken: %d, interrupted: %s\n", broken.load(),
              interruptions.load() > 100 ? "yes" : "NO");
  return 0;
}
