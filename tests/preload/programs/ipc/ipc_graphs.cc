// SPDX-License-Identifier: Apache-2.0
// Graphs reach memory of another process as long as that is open.
// It is opened during a capture or before it, launched while other handles are opened and closed,
// and exchanged by updates of one executable graph. What the owner finds in its blocks, and the
// importer in copies of them, is right each time.
//
//   closed    the owner frees its blocks once the importer's graph uses others
//   freed     the owner frees them while the graph lives, which is launched once more after that

#include <deque>
#include <vector>

#include "../timed_code.h"
#include "../watch_time.h"
#include "processes.h"

namespace {

using timed::Worker;

constexpr int kRounds = 20;
constexpr size_t kWords = 100;

struct Order {
  CUipcMemHandle written, read, other;
  unsigned seed;
};

enum class Then : int { next, once_more };

CUdeviceptr opened(const CUipcMemHandle& handle) {
  CUdeviceptr block = 0;
  MUST(cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return block;
}

uint32_t last_word(CUdeviceptr block) {
  uint32_t word = 0;
  MUST(cuMemcpyDtoH(&word, block + 4 * (kWords - 1), 4));
  return word;
}

class Importer {
 public:
  explicit Importer(const Worker& worker) : worker_(worker) {
    MUST(cuMemAlloc(&copy_, 4 * kWords));
  }

  // A graph that writes one block and reads another.
  int use(const Order& order) {
    const CUdeviceptr read = opened(order.read);
    CUgraph graph = nullptr;
    MUST(cuStreamBeginCapture(worker_.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    const CUdeviceptr written = opened(order.written);
    MUST(timed::fill_words(worker_.kernels, worker_.stream, written, kWords, order.seed + 7, 20));
    MUST(cuMemcpyDtoDAsync(copy_, read, 4 * kWords, worker_.stream));
    MUST(cuStreamEndCapture(worker_.stream, &graph));
    if (exec_ == nullptr) {
      MUST(cuGraphInstantiate(&exec_, graph, 0));
    } else {
      CUgraphExecUpdateResultInfo info;
      MUST(cuGraphExecUpdate(exec_, graph, &info));
    }
    MUST(cuGraphDestroy(graph));
    int wrong = launch(order);
    // What the graph used before, and what it never used, goes.
    close_all();
    MUST(cuIpcCloseMemHandle(opened(order.other)));
    wrong += launch(order);
    open_ = {read, written};
    return wrong;
  }
  int launch(const Order& order) {
    MUST(cuMemsetD32Async(copy_, 0, kWords, worker_.stream));
    MUST(cuGraphLaunch(exec_, worker_.stream));
    MUST(cuStreamSynchronize(worker_.stream));
    return last_word(copy_) != order.seed + kWords - 1;
  }
  void end() {
    MUST(cuGraphExecDestroy(exec_));
    close_all();
    MUST(cuMemFree(copy_));
  }

 private:
  void close_all() {
    for (const CUdeviceptr block : open_) MUST(cuIpcCloseMemHandle(block));
    open_.clear();
  }

  const Worker& worker_;
  CUdeviceptr copy_ = 0;
  CUgraphExec exec_ = nullptr;
  std::vector<CUdeviceptr> open_;
};

int import(const Peer& owner) {
  end_if_it_hangs();
  const Worker worker(use_device(0));
  Importer importer(worker);
  Order order;
  while (owner.hear(&order)) {
    owner.tell(importer.use(order));
    if (owner.must_hear<Then>() == Then::once_more) owner.tell(importer.launch(order));
  }
  importer.end();
  return 0;
}

class Owner {
 public:
  explicit Owner(const Worker& worker) : worker_(worker) {}

  Order share(unsigned seed, size_t bytes) {
    Order order{{}, {}, {}, seed};
    CUipcMemHandle* handles[] = {&order.written, &order.read, &order.other};
    for (CUipcMemHandle* handle : handles) {
      CUdeviceptr block = 0;
      MUST(cuMemAlloc(&block, bytes));
      MUST(timed::fill_words(worker_.kernels, worker_.stream, block, kWords, seed, 5));
      MUST(cuStreamSynchronize(worker_.stream));
      MUST(cuIpcGetMemHandle(handle, block));
      blocks_.push_back(block);
    }
    return order;
  }
  CUdeviceptr written() const { return blocks_[blocks_.size() - 3]; }
  // All but the last so many.
  void free_but(size_t count) {
    for (; blocks_.size() > count; blocks_.pop_front()) MUST(cuMemFree(blocks_.front()));
  }

 private:
  const Worker& worker_;
  std::deque<CUdeviceptr> blocks_;
};

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words));
  if (count < 2) return 1;
  const bool freed = std::strcmp(words[1], "freed") == 0;
  const Peer importer(words[0], "import");
  end_if_it_hangs();
  const Worker worker(use_device(0));
  Owner owner(worker);
  int wrong_here = 0, wrong_there = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    const unsigned seed = 1000 * round;
    const Order order = owner.share(seed, round % 4 == 3 ? 3 * kMiB : 20'000);
    importer.tell(order);
    wrong_there += importer.must_hear<int>();
    wrong_here += last_word(owner.written()) != seed + 7 + kWords - 1;
    owner.free_but(freed ? 0 : 3);
    importer.tell(freed ? Then::once_more : Then::next);
    if (freed) wrong_there += importer.must_hear<int>();
  }
  std::printf("wrong: %d %d\n", wrong_here, wrong_there);
  std::printf("importer ended with %d\n", importer.end());
  owner.free_but(0);
  return 0;
}
