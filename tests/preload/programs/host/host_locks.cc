// SPDX-License-Identifier: Apache-2.0
// The program locks and unlocks memory of its own; the kernel says what is locked.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../locked_memory.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;

// kB of this range that are locked, and of all.
long locked_of(const void* start, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(start), last = first + bytes;
  std::FILE* maps = std::fopen("/proc/self/smaps", "r");
  char line[512];
  uintptr_t from = 0, to = 0;
  long sum = 0;
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    char flags[400];
    if (std::sscanf(line, "%lx-%lx ", &from, &to) == 2) continue;
    if (std::sscanf(line, "VmFlags: %399[^\n]", flags) != 1 || !std::strstr(flags, "lo")) continue;
    const uintptr_t begin = from > first ? from : first, end = to < last ? to : last;
    if (begin < end) sum += static_cast<long>((end - begin) >> 10);
  }
  std::fclose(maps);
  return sum;
}

#define SAY(call)                                            \
  do {                                                       \
    errno = 0;                                               \
    const int result = call;                                 \
    std::printf("%s: %d, errno %d\n", #call, result, errno); \
  } while (0)

void codes(char* block, char* mapped) {
  SAY(mlock(block, kMiB));
  SAY(munlock(block, kMiB));
  SAY(munlock(block + 100, 5000));
  SAY(munlock(block, 0));
  SAY(munlock(reinterpret_cast<void*>(SIZE_MAX - 5000), 9000));
  SAY(munlock(block, SIZE_MAX));
  SAY(mlock2(block, kMiB, MLOCK_ONFAULT));
  SAY(mlock2(block, kMiB, 77));
  SAY(munlock(mapped + kMiB, kMiB));  // not mapped
  SAY(munlock(mapped, 2 * kMiB));
  SAY(mlock(mapped, kMiB / 2));
  std::printf("locked of the mapping: %ld kB\n", locked_of(mapped, kMiB));
  SAY(munlock(mapped, kMiB / 2));
  std::printf("locked of the mapping: %ld kB\n", locked_of(mapped, kMiB));
  SAY(munlockall());
  SAY(mlockall(0));
}

}  // namespace

// "codes": what the calls answer. "stays": what the pool locked of a block stays so, LOCKED_KB of
// it; needs the right to lock more than the usual limit.
int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  char* block = static_cast<char*>(std::malloc(4 * kMiB));
  std::memset(block, 1, 4 * kMiB);
  auto* mapped = static_cast<char*>(
      mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  munmap(mapped + kMiB, kMiB);
  if (std::strcmp(what, "codes") == 0) codes(block, mapped);
  if (std::strcmp(what, "stays") == 0 && geteuid() == 0) {
    const char* of_pool = std::getenv("LOCKED_KB");
    const long wanted = of_pool == nullptr ? 0 : std::atol(of_pool);
    const auto say = [&](const char* when) {
      const long kb = locked_of(block, 4 * kMiB);
      if (kb != wanted) std::printf("%s: %ld kB of the block are locked\n", when, kb);
    };
    const long all = locked_kb();
    say("at first");
    munlock(block + kMiB, kMiB);
    say("after munlock");
    mlock(block, kMiB);
    munlock(block, 4 * kMiB);
    say("after mlock and munlock");
    munlockall();
    say("after munlockall");
    if (locked_kb() != all) std::printf("locked in all: %ld, then %ld kB\n", all, locked_kb());
  }
  std::free(block);
  std::puts("done");
  return 0;
}
