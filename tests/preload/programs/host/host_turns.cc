// SPDX-License-Identifier: Apache-2.0
// Large blocks that a program frees and takes in turn stay with it, within a bound.
//
//   host_turns turns | excess | stale | zeroed | aligned
//
// Page faults are counted, not time: memory that went back to the system has to be faulted in
// again. Those of the C library are not judged.
#include <malloc.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// jemalloc's own, where the process has it.
extern "C" [[gnu::weak]] int mallctl(const char* name, void* old, size_t* old_size, void* wanted,
                                     size_t size);

namespace {

constexpr size_t kKiB = size_t{1} << 10, kMiB = size_t{1} << 20;

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

char* block_of(size_t bytes) {
  auto* block = static_cast<char*>(std::malloc(bytes));
  std::memset(block, 1, bytes);
  return block;
}

void say(const char* what, bool is) {
  std::printf("%s: %s\n", what, is || mallctl == nullptr ? "yes" : "NO");
}

uint64_t next_random() {  // xorshift64
  static uint64_t state = 88172645463325252U;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

// 32 blocks of 256 KiB to 4 MiB, one after another replaced: 45 MiB on average.
void turns() {
  constexpr int kLive = 32, kPairs = 6000;
  char* blocks[kLive] = {};
  long before = 0;
  for (int i = 0; i < 2 * kPairs; ++i) {
    if (i == kPairs) before = page_faults();
    char*& block = blocks[next_random() % kLive];
    std::free(block);
    const size_t least = 256 * kKiB << next_random() % 4;
    block = static_cast<char*>(std::malloc(least + next_random() % least));
    block[0] = 1;
  }
  say("few faults", page_faults() - before < kPairs / 5);
  for (char* block : blocks) std::free(block);
}

// Blocks of a larger size class serve smaller requests, but not many.
void excess() {
  constexpr size_t kAsked = 600 * kKiB, kClass = 640 * kKiB;
  size_t most = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<char*> large(30), small(200);
    for (char*& block : large) block = block_of(kMiB);
    for (char* block : large) std::free(block);
    for (char*& block : small) block = block_of(kAsked);
    size_t beyond = 0;
    for (char* block : small) beyond += malloc_usable_size(block) - kAsked;
    most = beyond > most ? beyond : most;
    for (char* block : small) std::free(block);
  }
  say("little excess", most <= 200 * (kClass - kAsked) + 8 * kMiB);
}

// What was freed of large blocks gives way to small ones that come and go.
void stale() {
  std::vector<char*> large(8);
  for (char*& block : large) block = block_of(4 * kMiB);
  for (char* block : large) std::free(block);
  constexpr int kRounds = 30, kCounted = 10;
  long before = 0;
  std::vector<char*> small(12'000);  // 24 MiB
  for (int round = 0; round < kRounds; ++round) {
    if (round == kRounds - kCounted) before = page_faults();
    for (char*& block : small) block = block_of(2 * kKiB);
    for (char* block : small) std::free(block);
  }
  say("few faults", page_faults() - before < kCounted * 1000);
}

// A block that serves again is zero to its end where that was asked for.
void zeroed() {
  bool zero = true;
  for (int round = 0; round < 10; ++round) {
    char* large = block_of(kMiB);
    std::free(large);
    auto* block = static_cast<char*>(std::calloc(1, 600'001));
    const size_t usable = mallctl == nullptr ? 600'001 : malloc_usable_size(block);
    for (size_t i = 0; i < usable; ++i) zero = zero && block[i] == 0;
    std::free(block);
  }
  say("zero to the end", zero);
}

// Aligned blocks are kept, too.
void aligned() {
  constexpr int kRounds = 1000;
  long before = 0;
  for (int round = 0; round < 2 * kRounds; ++round) {
    if (round == kRounds) before = page_faults();
    void* block = nullptr;
    if (posix_memalign(&block, 64, kMiB) != 0) return;
    std::memset(block, 1, kMiB);
    std::free(block);
  }
  say("few faults", page_faults() - before < kRounds);
}

}  // namespace

int main(int, char** argv) {
  const char* what = argv[1];
  if (std::strcmp(what, "turns") == 0) turns();
  if (std::strcmp(what, "excess") == 0) excess();
  if (std::strcmp(what, "stale") == 0) stale();
  if (std::strcmp(what, "zeroed") == 0) zeroed();
  if (std::strcmp(what, "aligned") == 0) aligned();
  return 0;
}
