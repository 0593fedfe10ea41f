// SPDX-License-Identifier: Apache-2.0
// Many threads at a time free what others allocated, and end.
// What they keep ready of freed blocks, and what their thread-local objects hold, goes with them.
// host_handover THREADS GENERATIONS BLOCKS, so many of each thread.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr size_t kSlots = 4096;

// What begins and ends a block tells whether it is still its own.
struct Block {
  size_t bytes;
  uint64_t mark;
};

std::atomic<Block*> slots[kSlots];
std::atomic<int> wrong{0};

uint64_t& last_word(Block* block) {
  return reinterpret_cast<uint64_t*>(block)[block->bytes / sizeof(uint64_t) - 1];
}

Block* make(unsigned random) {
  const size_t words = 4 + (random % 64 == 0 ? random >> 14 : random % 600);
  const size_t bytes = words * sizeof(uint64_t);
  auto* block = static_cast<Block*>(std::malloc(bytes));
  block->bytes = bytes;
  block->mark = last_word(block) = reinterpret_cast<uintptr_t>(block) ^ bytes;
  return block;
}

void end(Block* block) {
  if (block == nullptr) return;
  const uint64_t mark = reinterpret_cast<uintptr_t>(block) ^ block->bytes;
  wrong += block->mark != mark || last_word(block) != mark;
  std::free(block);
}

// Its blocks end after the function of the thread has.
struct Last {
  ~Last() {
    for (Block* block : blocks) end(block);
  }
  std::vector<Block*> blocks;
};
thread_local Last last;

void work(unsigned random, int blocks) {
  for (int i = 0; i < blocks; ++i) {
    random = random * 1664525 + 1013904223;
    end(slots[random >> 20].exchange(make(random)));
  }
  for (int i = 0; i < 8; ++i) last.blocks.push_back(make(random + static_cast<unsigned>(i)));
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned threads = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 1;
  const unsigned generations = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1;
  const int blocks = argc > 3 ? std::atoi(argv[3]) : 1;
  for (unsigned generation = 0; generation < generations; ++generation) {
    std::vector<std::thread> all;
    for (unsigned i = 0; i < threads; ++i) {
      all.emplace_back(work, generation * threads + i + 1, blocks);
    }
    for (std::thread& thread : all) thread.join();
  }
  for (auto& slot : slots) end(slot.exchange(nullptr));
  std::printf("wrong: %d\n", wrong.load());
  return 0;
}
