// SPDX-License-Identifier: Apache-2.0
// An owner under attack serves its importer, and its threads allocate.
// The importer opens, reads and closes a block again and again, until stdin ends. Strangers do what
// they like to the owner's socket meanwhile (life/strangers.py). Told a byte by stdin, the owner
// stops between two openings (SIGSTOP). In the end it prints what went wrong, and what is left:
// descriptors, and resident memory in MiB. With the word "figures" it says to stderr what depends
// on the machine: how many allocations, and the slowest one.

#include <dirent.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
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

void allocate(CUcontext context) {
  cuCtxSetCurrent(context);
  for (size_t i = 0; !stop; ++i) {
    CUdeviceptr block = 0;
    const auto begin = Clock::now();
    wrong += cuMemAlloc(&block, 1000 + 3000 * (i % 7)) != CUDA_SUCCESS;
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    for (long seen = slowest_us; seen < took.count();) {
      if (slowest_us.compare_exchange_weak(seen, took.count())) break;
    }
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
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(allocate, context);
  for (int i = 0; i < kRoundsAtFirst; ++i) serve_once(importer, handle);
  const long files = open_files(), resident = resident_mib();
  std::printf("ready\n");
  std::fflush(stdout);
  long rounds = 0;
  for (; rounds == 0 || !stdin_ended(); ++rounds) serve_once(importer, handle);
  const long more = std::max(0L, resident_mib() - resident);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  // The owner closes what it answered by after the importer has the answer.
  comes_true([=] { return open_files() <= files; });
  std::printf("wrong: %d, descriptors left: %ld, MiB left: %s\n", wrong.load(),
              std::max(0L, open_files() - files), more <= 64 ? "few" : "many");
  const bool figures = count > 1 && std::strcmp(words[1], "figures") == 0;
  if (figures)
    std::fprintf(stderr, "%ld openings, %ld allocations, the slowest %ld us, %ld MiB more\n",
                 rounds, allocations.load(), slowest_us.load(), more);
  SAY(cuMemFree(block));
  return importer.end();
}
