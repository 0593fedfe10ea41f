// SPDX-License-Identifier: Apache-2.0
// Where memory runs out requests fail with ENOMEM, and what is freed serves other threads again.
// host_short PERCENT ROUNDS: in the best round for each size, of the lower of the limits on address
// space and on what may be written (ulimit -v, -d), so much at least is served.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>

namespace {

// Not by way of stdio, which allocates.
void say(const char* text) {
  if (write(STDOUT_FILENO, text, std::strlen(text)) < 0) _exit(1);
}

uint64_t limit() {
  rlimit space{}, data{};
  getrlimit(RLIMIT_AS, &space);
  getrlimit(RLIMIT_DATA, &data);
  return std::min(space.rlim_cur, data.rlim_cur);
}

std::atomic<int> wrong{0};

struct Block {
  Block* next;
  size_t bytes;
};

// All there is, in blocks of this size; the list of them.
Block* take_all(size_t bytes, uint64_t* served) {
  Block* all = nullptr;
  while (true) {
    errno = 0;
    auto* block = static_cast<Block*>(std::malloc(bytes));
    if (block == nullptr) break;
    *block = {all, bytes};
    std::memset(block + 1, 0x33, 64);
    reinterpret_cast<char*>(block)[bytes - 1] = 0x44;
    all = block;
    *served += bytes;
  }
  wrong += errno != ENOMEM;
  return all;
}

void free_all(Block* all) {
  while (all != nullptr) {
    Block* next = all->next;
    const char* bytes = reinterpret_cast<char*>(all);
    wrong += bytes[sizeof(Block)] != 0x33 || bytes[all->bytes - 1] != 0x44;
    std::free(all);
    all = next;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto percent = static_cast<uint64_t>(argc > 1 ? std::atoi(argv[1]) : 50);
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 1;
  constexpr size_t kSizes[] = {100'000, 3000, size_t{5} << 20, 700'000};
  constexpr int kThreads = 2;
  uint64_t most[std::size(kSizes)] = {};  // served of each size, in the best round
  for (int i = 0; i < rounds; ++i) {
    for (size_t which = 0; which < std::size(kSizes); ++which) {
      const size_t bytes = kSizes[which];
      std::atomic<uint64_t> served{0};
      std::atomic<int> ready{0};
      const auto work = [&] {
        uint64_t own = 0;
        Block* all = take_all(bytes, &own);
        served += own;
        // Together, so that what is served is all there was.
        for (++ready; ready.load() < kThreads;) usleep(1000);
        free_all(all);
      };
      std::thread other(work);
      work();
      other.join();
      most[which] = std::max(most[which], served.load());
    }
  }
  const bool enough = *std::min_element(most, std::end(most)) >= limit() / 100 * percent;
  say(wrong == 0 ? "nothing wrong\n" : "WRONG\n");
  say(enough ? "enough\n" : "TOO LITTLE\n");
  return 0;
}
