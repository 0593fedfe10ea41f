// SPDX-License-Identifier: Apache-2.0
// An owner under attack serves its importer, and its threads allocate.
// The importer opens, reads and closes a block again and again, until stdin ends. Others do what
// they like to the owner's socket meanwhile (life/strangers.py, life/holders.py). A byte on stdin
// tells the owner what to do between two openings:
//
//   s   stop (SIGSTOP)
//   c   close each socket of Cistern's, as a program does that closes all descriptors
//   n   the same, and have a file of its own under each of their numbers until the end
//
// With the word "forks" the importer is forked all the time by another thread of its. The owner
// writes the block's handle to the file "handle" before it says that it is ready. An opening that
// fails after a close, since nobody heard or another process has the socket's name, is done again
// with a new handle. In the end it prints what went wrong, and what is left: descriptors, and
// resident memory in MiB. To stderr it says what depends on the machine: how many allocations, and
// the slowest one; also the slowest one without the time in which its thread waited for a
// processor.

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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

void count_wrong(int count, const char* what) {
  if (count == 0) return;
  wrong += count;
  std::printf("wrong: %s\n", what);
}

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
    count_wrong(cuMemAlloc(&block, 1000 + 3000 * (i % 7)) != CUDA_SUCCESS, "an allocation");
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    note_slowest(&slowest_us, took.count());
    note_slowest(&slowest_running_us, took.count() - (wait.us() - waited));
    count_wrong(cuMemFree(block) != CUDA_SUCCESS, "a free");
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

// Sockets for datagrams: of this program's, only Cistern has any.
template <typename Use>
void each_socket(Use use) {
  for (int number = 0; number < 1024; ++number) {
    int domain = 0, type = 0;
    socklen_t bytes = sizeof domain;
    if (getsockopt(number, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX &&
        getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_DGRAM) {
      use(number);
    }
  }
}

// What a program may do to numbers that another thread uses, a race detector would call a race: it
// does not see raw calls.
long close_rudely(int number) { return syscall(SYS_close, number); }

// Under numbers that were Cistern's.
class OwnFiles {
 public:
  void put_at(int number) {
    if (syscall(SYS_dup3, STDIN_FILENO, number, O_CLOEXEC) == number) numbers_.push_back(number);
  }
  // How many are not there any more.
  int close_all() {
    int lost = 0;
    for (const int number : numbers_) lost += close_rudely(number) != 0;
    numbers_.clear();
    return lost;
  }

 private:
  std::vector<int> numbers_;
};

class Owner {
 public:
  explicit Owner(const Peer& importer) : importer_(importer) {
    SAY(cuMemAlloc(&block_, kBytes));
    SAY(cuMemsetD32(block_, 31, kBytes / 4));
    SAY(cuCtxSynchronize());
    export_block();
  }

  void export_block() {
    SAY(cuIpcGetMemHandle(&handle_, block_));
    std::FILE* file = std::fopen("handle.new", "w");
    for (const char byte : handle_.reserved) {
      std::fprintf(file, "%02x", static_cast<unsigned char>(byte));
    }
    std::fclose(file);
    count_wrong(std::rename("handle.new", "handle") != 0, "renaming");
  }
  void serve_once() {
    Told told = asked(What::open);
    // Where our sockets were closed there is a new handle, and an importer that got no processor is
    // too late on its line while others fill them all.
    if (told.code != CUDA_SUCCESS) {
      comes_true([&] {
        export_block();
        return (told = asked(What::open)).code == CUDA_SUCCESS;
      });
    }
    count_wrong(told.code != CUDA_SUCCESS, "opening");
    told = asked(What::read);
    count_wrong(told.code != CUDA_SUCCESS || told.holds != 31, "reading");
    count_wrong(asked(What::close).code != CUDA_SUCCESS, "closing");
  }
  // False: stdin ended.
  bool obey() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, 0) <= 0) return true;
    char byte;
    if (read(STDIN_FILENO, &byte, 1) != 1) return false;
    if (byte == 's') kill(getpid(), SIGSTOP);
    if (byte == 'c') each_socket(close_rudely);
    if (byte == 'n') each_socket([this](int number) { files_.put_at(number); });
    return true;
  }
  void end() {
    count_wrong(files_.close_all(), "own files");
    SAY(cuMemFree(block_));
  }

 private:
  Told asked(What what) const {
    importer_.tell(Order{what, handle_, 0});
    return importer_.must_hear<Told>();
  }

  const Peer& importer_;
  CUdeviceptr block_ = 0;
  CUipcMemHandle handle_{};
  OwnFiles files_;
};

// In the importer: children, none of which may have a socket of Cistern's.
void fork_all_the_time() {
  while (!stop) {
    const pid_t child = fork();
    if (child == 0) {
      int sockets = 0;
      each_socket([&](int) { ++sockets; });
      _exit(sockets);
    }
    int status = 0;
    waitpid(child, &status, 0);
    count_wrong(status != 0, "a child has a socket");
    usleep(1000);
  }
}

Told tell_of_children(const Order&) { return {wrong, 0}; }

int import_and_fork(const Peer& owner) {
  std::thread forks(fork_all_the_time);
  const int status = import(owner, tell_of_children);
  stop = true;
  forks.join();
  return status;
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words), tell_of_children);
  if (started_as(count, words, "import_and_fork")) return import_and_fork(owner_of(words));
  const bool forks = count > 1 && std::strcmp(words[1], "forks") == 0;
  const Peer importer(words[0], forks ? "import_and_fork" : "import");
  CUcontext context = use_device(0);
  Owner owner(importer);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::latch started(kThreads);
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(allocate, context, &started);
  started.wait();
  for (int i = 0; i < kRoundsAtFirst; ++i) owner.serve_once();
  const long files = open_files(), resident = resident_mib();
  std::printf("ready\n");
  std::fflush(stdout);
  long rounds = 0;
  for (; rounds == 0 || owner.obey(); ++rounds) owner.serve_once();
  owner.end();
  const long more = std::max(0L, resident_mib() - resident);
  // The owner closes what it answered by after the importer has the answer.
  comes_true([=] { return open_files() <= files; });
  const long files_left = std::max(0L, open_files() - files);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  importer.tell(Order{What::fork, {}, 0});
  count_wrong(static_cast<int>(importer.must_hear<Told>().code), "the importer's children");
  std::printf("wrong: %d, descriptors left: %ld, MiB left: %s\n", wrong.load(), files_left,
              more <= 64 ? "few" : "many");
  if (count > 1) {
    std::fprintf(stderr,
                 "%ld openings, %ld allocations, the slowest %ld us, %ld us without waits for a "
                 "processor, %ld MiB more\n",
                 rounds, allocations.load(), slowest_us.load(), slowest_running_us.load(), more);
  }
  return importer.end();
}
