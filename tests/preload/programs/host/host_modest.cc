// SPDX-License-Identifier: Apache-2.0
// Where nothing is set, what a program frees is the system's again without a call of it.
#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

// jemalloc's own, where the process has it.
extern "C" [[gnu::weak]] int mallctl(const char* name, void* old, size_t* old_size, void* wanted,
                                     size_t size);

namespace {

constexpr size_t kMiB = size_t{1} << 20;

// In bytes, without an allocation.
size_t status(const char* name) {
  static char text[4096];
  std::FILE* file = std::fopen("/proc/self/status", "r");
  const size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[length] = '\0';
  const char* line = std::strstr(text, name);
  return line == nullptr ? 0 : std::strtoull(line + std::strlen(name), nullptr, 10) << 10;
}

char* block_of(size_t bytes) {
  auto* block = static_cast<char*>(std::malloc(bytes));
  std::memset(block, 1, bytes);
  return block;
}

void say(const char* what, bool is) { std::printf("%s: %s\n", what, is ? "yes" : "NO"); }

bool all_are(const char* block, size_t bytes, char value) {
  return std::all_of(block, block + bytes, [value](char byte) { return byte == value; });
}

void freed(size_t bytes) {
  const size_t before = status("VmRSS:");
  std::vector<char*> blocks(320 * kMiB / bytes);
  for (char*& block : blocks) block = block_of(bytes);
  say("held", status("VmRSS:") > before + 300 * kMiB);
  for (char* block : blocks) std::free(block);
  say("went back", status("VmRSS:") <= before + 64 * kMiB);
}

void large() {
  const size_t before = status("VmRSS:");
  char* block = block_of(64 * kMiB);
  std::free(block);
  say("a large block went back at once", status("VmRSS:") <= before + 4 * kMiB);
}

void growth() {
  const size_t before = status("VmRSS:");
  char* block = nullptr;
  for (size_t mib = 1; mib <= 400; ++mib) {
    block = static_cast<char*>(std::realloc(block, mib * kMiB));
    std::memset(block + (mib - 1) * kMiB, static_cast<int>(mib % 100), kMiB);
  }
  say("in memory once", status("VmHWM:") <= before + 520 * kMiB);
  bool kept = true;
  for (size_t mib = 1; mib <= 400; ++mib) {
    kept &= all_are(block + (mib - 1) * kMiB, kMiB, static_cast<char>(mib % 100));
  }
  say("kept", kept);
  block = static_cast<char*>(std::realloc(block, 20 * kMiB));
  say("shrinks", status("VmRSS:") <= before + 84 * kMiB && all_are(block, kMiB, 1));
  block = static_cast<char*>(std::realloc(block, 40 * kMiB));
  say("grows again", all_are(block + 19 * kMiB, kMiB, 20));
  std::free(block);
}

// Below what is given back without being asked for.
void asked() {
  for (const bool by_mallctl : {false, true}) {
    const size_t before = status("VmRSS:");
    std::vector<char*> blocks(1000);
    for (char*& block : blocks) block = block_of(40'000);
    for (char* block : blocks) std::free(block);
    if (by_mallctl && mallctl != nullptr) {
      mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
      mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);
    } else {
      malloc_trim(0);
    }
    say("went back when asked", status("VmRSS:") <= before + 4 * kMiB);
  }
}

// As what sets up a sandbox does: it works for a process of one thread only.
void alone() {
  freed(300 << 10);
  const int code = unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
  say("no other thread", code != EINVAL);
}

// Of the limit on addresses.
void nearly_all() {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  for (const int percent : {86, 90, 94, 97}) {
    const size_t bytes = limit.rlim_cur / 100 * static_cast<size_t>(percent);
    auto* block = static_cast<char*>(std::malloc(bytes));
    say("given", block != nullptr);
    if (block == nullptr) continue;
    block[0] = block[bytes - 1] = 1;
    const size_t usable = malloc_usable_size(block);
    say("usable", usable >= bytes && usable < limit.rlim_cur);
    block[usable - 1] = 1;
    std::free(block);
    auto* zeros = static_cast<char*>(std::calloc(1, bytes));
    say("zero", zeros != nullptr && zeros[0] == 0 && zeros[bytes - 1] == 0);
    if (zeros == nullptr) continue;
    zeros[5] = 3;
    char* const kept = zeros;
    asm volatile("" : "+r"(zeros));  // realloc() leaves it alone where it fails
    auto* more = static_cast<char*>(std::realloc(zeros, limit.rlim_cur));
    say("no more", more == nullptr && errno == ENOMEM);
    if (more != nullptr) continue;
    auto* smaller = static_cast<char*>(std::realloc(kept, bytes / 100));
    say("smaller", smaller != nullptr && smaller[5] == 3);
    std::free(smaller);
  }
}

// Blocks of all sizes grow in some threads while others want memory of the sizes that they had.
void together() {
  constexpr int kThreads = 4, kRounds = 10;
  std::atomic<int> wrong{0};
  const auto work = [&wrong] {
    for (int i = 0; i < kRounds; ++i) {
      for (size_t bytes = 16; bytes <= 32 * kMiB; bytes *= 2) {
        auto* grows = static_cast<char*>(std::malloc(bytes));
        auto* zeros = static_cast<char*>(std::calloc(1, bytes / 2));
        grows[0] = grows[bytes - 1] = 1;
        asm volatile("" : "+r"(grows), "+r"(zeros));
        grows = static_cast<char*>(std::realloc(grows, bytes + bytes / 2));
        wrong +=
            grows[0] != 1 || grows[bytes - 1] != 1 || zeros[0] != 0 || zeros[bytes / 2 - 1] != 0;
        std::free(zeros);
        std::free(grows);
      }
      std::vector<void*> small(2000);
      for (size_t each = 0; each < small.size(); ++each) small[each] = std::malloc(each * 50);
      for (void* each : small) std::free(each);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  std::printf("wrong bytes: %d\n", wrong.load());
}

}  // namespace

int main(int, char** argv) {
  const char* what = argv[1];
  if (std::strcmp(what, "freed") == 0) freed(300 << 10);
  if (std::strcmp(what, "small") == 0) freed(300);
  if (std::strcmp(what, "large") == 0) large();
  if (std::strcmp(what, "growth") == 0) growth();
  if (std::strcmp(what, "asked") == 0) asked();
  if (std::strcmp(what, "alone") == 0) alone();
  if (std::strcmp(what, "nearly-all") == 0) nearly_all();
  if (std::strcmp(what, "together") == 0) together();
  return 0;
}
