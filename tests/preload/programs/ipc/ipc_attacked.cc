// SPDX-License-Identifier: Apache-2.0
// An owner under attack serves its importer, and its threads allocate.
// The importer opens, reads and closes a block again and again, until stdin ends. Strangers do what
// they like to the owner's socket meanwhile (life/strangers.py). Told a byte by stdin, the owner
// stops between two openings (SIGSTOP). In the end it prints what went wrong, and what is left:
// descriptors, and resident memory in MiB. With the word "figures" it says to stderr what depends
// on the machine: how many allocations, and the slowest one; also the slowest one without the time
// in which its thread waited for a processor.

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <latch>
#include <thread>
#include <vector>

#include "orders.h"
#include "tests/hangs.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kThreads = 4;
constexpr int kRoundsAtFirst = 20;  // until all that is made once is there

std::atomic<bool> stop{false};
std::atomic<int> wrong{0};
std::atomic<long> allocations{0};
std::atomic<long> slowest_us{0};
std::atomic<long> slowest_running_us{0};

// How long the calling thread has waited for a processor (the second number of schedstat; proc(5)).
// 0 where the kernel does not count it.
class WaitForProcessor {
 public:
  long us() const {
    char text[100]{};
    long ran = 0, waited = 0;
    if (pread(file_, text, sizeof text - 1, 0) <= 0) return 0;
    return std::sscanf(text, "%ld %ld", &ran, &waited) == 2 ? waited / 1000 : 0;
  }
  ~WaitForProcessor() { close(file_); }

 private:
  const int file_ = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
};

void note_slowest(std::atomic<long>* slowest, long us) {
  for (long seen = *slowest; seen < us && !slowest->compare_exchange_weak(seen, us);) {
  }
}

void allocate(CUcontext context, std::latch* started) {
  cuCtxSetCurrent(context);
  const WaitForProcessor wait;
  started->count_down();
  for (size_t i = 0; !stop; ++i) {
    CUdeviceptr block = 0;
    const long waited = wait.us();
    const auto begin = Clock::now();
    wrong += cuMemAlloc(&block, 1000 + 3000 * (i % 7)) != CUDA_SUCCESS;
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    note_slowest(&slowest_us, took.count());
    note_slowest(&slowest_running_us, took.count() - (wait.us() - waited));
    wrong += cuMemFree(block) != CUDA_SUCCESS;
    ++allocations;
  }
}

long open_files() {
  long count = 0;
  DIR* all = opendir("/proc/self/fd");
  while (readdir(all) != nullptr) ++count;
  closedir(all);
  return count;
}

long resident_mib() {
  long pages = 0, resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * getpagesize() >> 20;
}

bool stdin_ended() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, 0) <= 0) return false;
  char byte;
  if (read(STDIN_FILENO, &byte, 1) != 1) return true;
  kill(getpid(), SIGSTOP);
  return false;
}

void serve_once(const Peer& importer, const CUipcMemHandle& handle) {
  for (const What what : {What::open, What::read, What::close}) {
    importer.tell(Order{what, handle, 0});
    const Told told = importer.must_hear<Told>();
    wrong += told.code != CUDA_SUCCESS || (what == What::read && told.holds != 31);
  }
}

Told obey_nothing_else(const Order&) { return {CUDA_ERROR_UNKNOWN, 0}; }

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words), obey_nothing_else);
  const Peer importer(words[0], "import");
  CUcontext context = use_device(0);
  CUdeviceptr block = 0;
  CUipcMemHandle handle;
  SAY(cuMemAlloc(&block, kBytes));
  SAY(cuMemsetD32(block, 31, kBytes / 4));
  SAY(cuCtxSynchronize());
  SAY(cuIpcGetMemHandle(&handle, block));
  std::vector<std::thread> threads;
  std::latch started(kThreads);
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(allocate, context, &started);
  started.wait();
  for (int i = 0; i < kRoundsAtFirst; ++i) serve_once(importer, handle);
  const long files = open_files(), resident = resident_mib();
  std::printf("ready\n");
  std::fflush(stdout);
  long rounds = 0;
  for (; rounds == 0 || !stdin_ended(); ++rounds) serve_once(importer, handle);
  const long more = std::max(0L, resident_mib() - resident);
  // The owner closes what it answered by after the importer has the answer.
  comes_true([=] { return open_files() <= files; });
  const long files_left = std::max(0L, open_files() - files);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("wrong: %d, descriptors left: %ld, MiB left: %s\n", wrong.load(), files_left,
              more <= 64 ? "few" : "many");
  const bool figures = count > 1 && std::strcmp(words[1], "figures") == 0;
  if (figures)
    std::fprintf(stderr,
                 "%ld openings, %ld allocations, the slowest %ld us, %ld us without waits for a "
                 "processor, %ld MiB more\n",
                 rounds, allocations.load(), slowest_us.load(), slowest_running_us.load(), more);
  SAY(cuMemFree(block));
  return importer.end();
}
