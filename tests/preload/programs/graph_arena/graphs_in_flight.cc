// SPDX-License-Identifier: Apache-2.0
// Graphs whose kernels are still under way when their blocks are freed, and later graphs begin.
//
//   graphs_in_flight turns marked|ranges|unmarked ROUNDS DELAY_US
//   graphs_in_flight threads|devices|endless
//
// turns: a small graph and a large one, by turns; some blocks of their first runs, as large as
// temporary ones, live to the end. threads: two threads' graphs are open at the same time. devices:
// one device is busy for good while graphs run on the other one. endless: work that began in a
// small graph lasts until a large one, which needs more each time, has all its memory.

#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"
#include "graph.h"

namespace {

constexpr uint32_t kRounds = 12;
constexpr size_t kRead = 256;  // bytes at the end of a block

struct Block {
  CUdeviceptr address;
  size_t bytes;
};

// A device's stream, and the sum of all that its kernels have read.
class Work {
 public:
  explicit Work(CUcontext context, uint32_t delay_us) : worker_(context), delay_us_(delay_us) {
    MUST(cuMemAlloc(&total_, sizeof(uint64_t)));
    MUST(cuMemsetD8(total_, 0, sizeof(uint64_t)));
    MUST(cuCtxSynchronize());
  }

  const timed::Worker& worker() const { return worker_; }

  std::vector<Block> write(int count, size_t bytes, uint32_t seed) const {
    std::vector<Block> blocks(static_cast<size_t>(count), Block{0, bytes});
    for (Block& block : blocks) {
      MUST(cuMemAlloc(&block.address, bytes));
      MUST(timed::fill_words(worker_.kernels, worker_.stream, end_of(block), kRead / 4, seed++,
                             delay_us_));
    }
    return blocks;
  }
  void read(const std::vector<Block>& blocks) const {
    for (const Block& block : blocks) {
      MUST(timed::sum_words(worker_.kernels, worker_.stream, end_of(block), kRead / 4, total_,
                            delay_us_));
    }
  }
  // Freed while it is read.
  void end(const std::vector<Block>& blocks) const {
    read(blocks);
    for (const Block& block : blocks) MUST(cuMemFree(block.address));
  }
  void say(const char* what) const {
    uint64_t sum = 0;
    worker_.use();
    MUST(cuStreamSynchronize(worker_.stream));
    MUST(cuMemcpyDtoH(&sum, total_, sizeof sum));
    std::printf("%s: %llu\n", what, static_cast<unsigned long long>(sum));
  }

 private:
  static CUdeviceptr end_of(const Block& block) { return block.address + block.bytes - kRead; }

  timed::Worker worker_;
  uint32_t delay_us_;
  CUdeviceptr total_ = 0;
};

void run(const Work& work, const char* how, const char* name, int count, size_t bytes,
         uint32_t seed) {
  const Graph graph(how, name);
  work.end(work.write(count, bytes, seed));
}

// What stays lies among what does not.
std::vector<Block> run_first(const Work& work, const char* how, const char* name, int count,
                             size_t bytes) {
  const Graph graph(how, name);
  const std::vector<Block> some = work.write(count / 2, bytes, 1);
  std::vector<Block> stays = work.write(1, bytes, 2);
  const std::vector<Block> more = work.write(count / 2, bytes, 3);
  work.end(some);
  stays.push_back(work.write(1, 3 * kMiB, 4).front());
  work.end(more);
  return stays;
}

void turns(CUcontext context, const char* how, uint32_t rounds, uint32_t delay_us) {
  const Work work(context, delay_us);
  const std::vector<Block> one = run_first(work, how, "small", 8, kMiB);
  const std::vector<Block> other = run_first(work, how, "large", 8, 4 * kMiB);
  for (uint32_t i = 0; i < rounds; ++i) {
    run(work, how, "small", 8, kMiB, 100 * i);
    run(work, how, "large", 8, 4 * kMiB, 100 * i);
    if (std::strcmp(how, "unmarked") == 0) MUST(cuCtxSynchronize());
  }
  work.end(one);
  work.end(other);
  work.say("sum");
}

void threads(CUcontext context) {
  const Work one(context, 20), other(context, 50);
  std::barrier together(2);
  const auto rounds = [&](const Work& work, const char* name, size_t bytes) {
    work.worker().use();
    for (uint32_t i = 0; i < kRounds; ++i) {
      {
        const Graph graph("marked", name);
        const std::vector<Block> held = work.write(1, bytes, i);
        together.arrive_and_wait();
        work.end(work.write(6, bytes, 100 * i));
        together.arrive_and_wait();
        work.end(held);
      }
      together.arrive_and_wait();
    }
  };
  std::thread second(rounds, std::ref(other), "second", 2 * kMiB);
  rounds(one, "first", 3 * kMiB);
  second.join();
  one.say("first");
  other.say("second");
}

void devices(CUcontext here) {
  const CUcontext there = use_device(1);
  const Work busy(there, 20);
  run(busy, "marked", "there", 6, 4 * kMiB, 1);
  timed::Held held(busy.worker().kernels, busy.worker().stream);
  MUST(cuCtxSetCurrent(here));
  const Work work(here, 20);
  for (uint32_t i = 0; i < kRounds; ++i) {
    run(work, "marked", i % 2 == 0 ? "even" : "odd", 6, kMiB << i % 2, i);
    const Graph graph("marked", "there");
    busy.worker().use();
    const std::vector<Block> blocks = busy.write(1, 4 * kMiB, i);
    MUST(cuCtxSetCurrent(here));
  }
  held.end();
  work.say("here");
  busy.say("there");
}

void endless(CUcontext context) {
  const Work work(context, 20);
  const CUstream stuck = timed::new_stream();
  for (uint32_t i = 0; i < kRounds; ++i) {
    timed::Held* held = nullptr;
    {
      const Graph graph("marked", "small");
      work.end(work.write(4, kMiB, i));
      MUST(cuStreamSynchronize(work.worker().stream));
      held = new timed::Held(work.worker().kernels, stuck);
    }
    const Graph graph("marked", "large");
    const std::vector<Block> blocks = work.write(4 + static_cast<int>(i / 3), 3 * kMiB, 100 * i);
    held->end();
    work.end(blocks);
    delete held;
  }
  work.say("sum");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  end_if_it_hangs();
  const CUcontext context = use_device(0);
  if (std::strcmp(argv[1], "threads") == 0) threads(context);
  if (std::strcmp(argv[1], "devices") == 0) devices(context);
  if (std::strcmp(argv[1], "endless") == 0) endless(context);
  const auto number = [&](int i) { return static_cast<uint32_t>(std::atoi(argv[i])); };
  if (argc > 4) turns(context, argv[2], number(3), number(4));
  return 0;
}
