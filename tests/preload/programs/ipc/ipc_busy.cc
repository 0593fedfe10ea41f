// SPDX-License-Identifier: Apache-2.0
// Sharing blocks while devices are busy takes nobody longer than with the driver alone.
//
//   steady    both processes launch kernels of 5 to 100 us all the time, some of them on the blocks
//   endless   a kernel that waits for the host occupies the device in both processes
//   second    such a kernel occupies another device in both
//   left      the same, and what the importer closed there during a capture is still mapped
//   beside    a block is closed under work, whose neighbour stays open
//   again     as "left", but what is opened then is opened in the context that is busy

#include <atomic>
#include <thread>
#include <vector>

#include "../timed_code.h"
#include "../watch_time.h"
#include "processes.h"

namespace {

using timed::Held;
using timed::Worker;

constexpr size_t kBytes = 64 * 1024, kWords = 100;
constexpr int kRounds = 60;

struct Order {
  CUipcMemHandle handle, other;
  unsigned seed;
};

uint32_t last_word(CUdeviceptr block, CUstream stream) {
  uint32_t word = 0;
  MUST(cuMemcpyDtoHAsync(&word, block + 4 * (kWords - 1), 4, stream));
  MUST(cuStreamSynchronize(stream));
  return word;
}

CUdeviceptr block_of(const Worker& worker, unsigned seed, size_t bytes = kBytes) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, bytes));
  MUST(timed::fill_words(worker.kernels, worker.stream, block, kWords, seed, 1));
  MUST(cuStreamSynchronize(worker.stream));
  return block;
}

CUipcMemHandle handle_of(CUdeviceptr block) {
  CUipcMemHandle handle;
  MUST(cuIpcGetMemHandle(&handle, block));
  return handle;
}

CUdeviceptr opened(const CUipcMemHandle& handle) {
  CUdeviceptr block = 0;
  MUST(cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return block;
}

// Launches short kernels until it goes; they are never all done before.
class Launches {
 public:
  explicit Launches(CUcontext context) : thread_([this, context] { go_on(context); }) {
    while (!busy_) usleep(100);
  }
  ~Launches() {
    stop_ = true;
    thread_.join();
  }

 private:
  void go_on(CUcontext context) {
    MUST(cuCtxSetCurrent(context));
    const Worker own(context);
    CUdeviceptr words = 0;
    MUST(cuMemAlloc(&words, kBytes));
    for (unsigned i = 0; !stop_; ++i) {
      constexpr unsigned kDelays[] = {5, 20, 100};
      for (int k = 0; k < 50; ++k) {
        MUST(timed::fill_words(own.kernels, own.stream, words, kWords, i, kDelays[i % 3]));
      }
      busy_ = true;
      if (i % 8 == 7) MUST(cuStreamSynchronize(own.stream));
      usleep(500);
    }
    MUST(cuStreamSynchronize(own.stream));
    MUST(cuMemFree(words));
  }

  std::atomic<bool> stop_{false}, busy_{false};
  std::thread thread_;
};

int use_steadily(const Peer& owner, CUcontext context) {
  const Worker worker(context);
  const Launches launches(context);
  Order order;
  while (owner.hear(&order)) {
    const CUdeviceptr block = opened(order.handle), other = opened(order.other);
    int wrong = last_word(block, worker.stream) != order.seed + kWords - 1;
    for (const unsigned delay : {5U, 20U, 100U}) {
      MUST(timed::fill_words(worker.kernels, worker.stream, block, kWords, order.seed + delay,
                             delay));
    }
    // Closed under the work of its stream, which is over then.
    MUST(cuIpcCloseMemHandle(block));
    wrong += last_word(other, worker.stream) != order.seed + 1 + kWords - 1;
    MUST(cuIpcCloseMemHandle(other));
    owner.tell(wrong);
  }
  return 0;
}

void share_steadily(const Peer& importer, CUcontext context) {
  const Worker worker(context);
  const Launches launches(context);
  int wrong = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    const unsigned seed = 1000 * round;
    const size_t bytes = round % 3 == 0 ? 3 * kMiB : kBytes;
    const CUdeviceptr block = block_of(worker, seed, bytes), other = block_of(worker, seed + 1);
    importer.tell(Order{handle_of(block), handle_of(other), seed});
    wrong += importer.must_hear<int>();
    wrong += last_word(block, worker.stream) != seed + 100 + kWords - 1;
    MUST(cuMemFree(block));
    MUST(cuMemFree(other));
  }
  std::printf("wrong: %d\n", wrong);
}

// All but the last close while the kernel runs. What is closed in its context waits for it.
struct Seen {
  bool at_once;
  uint32_t first, second;
};

Seen look_at(const Order& order, const Worker& worker, bool close) {
  const Naps naps;
  const CUdeviceptr block = opened(order.handle), other = opened(order.other),
                    again = opened(order.handle);
  Seen seen{};
  seen.first = last_word(block, worker.stream);
  MUST(timed::fill_words(worker.kernels, worker.stream, again, kWords, order.seed + 7, 100));
  MUST(cuStreamSynchronize(worker.stream));
  seen.second = last_word(other, worker.stream);
  if (close) {
    for (const CUdeviceptr one : {block, other, again}) MUST(cuIpcCloseMemHandle(one));
  }
  seen.at_once = naps.few();
  return seen;
}

void say(const Seen& seen) {
  std::printf("at once: %d, held %u %u\n", seen.at_once, seen.first, seen.second);
}

void look_beside_held(const Peer& owner, CUcontext here, CUcontext there) {
  MUST(cuCtxSetCurrent(there));
  const Worker away(there);
  MUST(cuCtxSetCurrent(here));
  const Worker worker(here);
  const auto order = owner.must_hear<Order>();
  MUST(cuCtxSetCurrent(there));
  Held held(away.kernels, away.stream);
  MUST(cuCtxSetCurrent(here));
  owner.tell(look_at(order, worker, /*close=*/here != there));
  held.end();
}

// The kernel may hold on in the owner as well.
void share_beside_held(const Peer& importer, CUcontext here, CUcontext there) {
  MUST(cuCtxSetCurrent(there));
  const Worker away(there);
  MUST(cuCtxSetCurrent(here));
  const Worker worker(here);
  const CUdeviceptr block = block_of(worker, 5), large = block_of(worker, 6, 3 * kMiB);
  MUST(cuCtxSetCurrent(there));
  Held held(away.kernels, away.stream);
  MUST(cuCtxSetCurrent(here));
  const Naps naps;
  const Order order{handle_of(block), handle_of(large), 5};
  std::printf("exported at once: %d\n", naps.few());
  importer.tell(order);
  say(importer.must_hear<Seen>());
  std::printf("written there: %u\n", last_word(block, worker.stream));
  held.end();
  MUST(cuMemFree(block));
  MUST(cuMemFree(large));
}

// `there` has closed a block of its own during a capture, and is busy then.
void look_with_left(const Peer& owner, CUcontext here, CUcontext there) {
  MUST(cuCtxSetCurrent(here));
  const Worker worker(here);
  MUST(cuCtxSetCurrent(there));
  const Worker away(there);
  const auto first = owner.must_hear<Order>(), second = owner.must_hear<Order>();
  const CUdeviceptr block = opened(first.handle);
  CUstream capturing = timed::new_stream();
  CUgraph graph = nullptr;
  MUST(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuIpcCloseMemHandle(block));
  MUST(cuStreamEndCapture(capturing, &graph));
  MUST(cuGraphDestroy(graph));
  Held held(away.kernels, away.stream);
  MUST(cuCtxSetCurrent(here));
  owner.tell(look_at(second, worker, /*close=*/here != there));
  held.end();
}

void share_with_left(const Peer& importer, CUcontext here, CUcontext there) {
  MUST(cuCtxSetCurrent(there));
  const Worker away(there);
  const CUdeviceptr elsewhere = block_of(away, 4);
  importer.tell(Order{handle_of(elsewhere), {}, 4});
  MUST(cuCtxSetCurrent(here));
  const Worker worker(here);
  const CUdeviceptr block = block_of(worker, 5), large = block_of(worker, 6, 3 * kMiB);
  importer.tell(Order{handle_of(block), handle_of(large), 5});
  say(importer.must_hear<Seen>());
  for (const CUdeviceptr one : {block, large, elsewhere}) MUST(cuMemFree(one));
}

std::atomic<bool> g_go{false};
std::atomic<int> g_done{0};

void CUDA_CB slow(void*) {
  while (!g_go) usleep(100);
  g_done = 1;
}

void close_beside(const Peer& owner, CUcontext context) {
  const Worker worker(context);
  const auto order = owner.must_hear<Order>();
  const CUdeviceptr block = opened(order.handle), other = opened(order.other);
  MUST(cuLaunchHostFunc(worker.stream, slow, nullptr));
  MUST(timed::fill_words(worker.kernels, worker.stream, block, kWords, order.seed + 7, 5));
  const OnceThisWaits ends(&g_go);
  MUST(cuIpcCloseMemHandle(block));
  owner.tell(g_done.load());
  MUST(cuIpcCloseMemHandle(other));
}

void share_beside(const Peer& importer, CUcontext context) {
  const Worker worker(context);
  const CUdeviceptr block = block_of(worker, 5), other = block_of(worker, 6);
  importer.tell(Order{handle_of(block), handle_of(other), 5});
  std::printf("its work was done: %d\n", importer.must_hear<int>());
  std::printf("written there: %u\n", last_word(block, worker.stream));
  MUST(cuMemFree(block));
  MUST(cuMemFree(other));
}

int run(const Peer& peer, const char* word, bool owner) {
  end_if_it_hangs();
  CUcontext here = use_device(0), there = here;
  const auto is = [=](const char* name) { return std::strcmp(word, name) == 0; };
  if (is("second") || is("left")) there = use_device(1);
  MUST(cuCtxSetCurrent(here));
  if (is("steady"))
    owner ? share_steadily(peer, here) : static_cast<void>(use_steadily(peer, here));
  if (is("endless") || is("second"))
    (owner ? share_beside_held : look_beside_held)(peer, here, there);
  if (is("left") || is("again")) (owner ? share_with_left : look_with_left)(peer, here, there);
  if (is("beside")) (owner ? share_beside : close_beside)(peer, here);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) {
    const char* word = std::getenv("IPC_BUSY");
    return word == nullptr ? 1 : run(owner_of(words), word, /*owner=*/false);
  }
  if (count < 2) return 1;
  setenv("IPC_BUSY", words[1], 1);
  const Peer importer(words[0], "import");
  const int status = run(importer, words[1], /*owner=*/true);
  std::printf("importer ended with %d\n", importer.end());
  return status;
}
