// SPDX-License-Identifier: Apache-2.0
// Freed memory serves the next request wherever the driver's own free would have given it back.
//
//   old_frees plain|ordered|many_ordered|elsewhere|captured|pinned|pinned_rounds
//   old_frees peer|peer_idle|peer_idle_ordered|copied|copy_begins|twice
//   old_frees capture_begins [peer|copy|by_itself]
//   old_frees apart KIND KIB now|later|rounds|kept|threads|refused
//                     blocks that no pool takes back are freed in stream order, beside work that
//                     ends when the host says so. KIND: `direct`, requested during a capture;
//                     `exported`, other processes may know them; `open_capture`, freed during one.
//                     All memory is asked for beside that work, later, again and again, or after a
//                     free that waits; several threads free each block; or the driver refuses some
//
// On drivers before CUDA 12.5, which record no event for a whole context, it takes an event behind
// each stream: no synchronisation of the program tells there that other contexts have no work.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

extern "C" CUresult cuMemFreeAsync_ptsz(CUdeviceptr block, CUstream stream);

namespace {

constexpr size_t kBytes = 40 * kMiB, kSmall = 600 << 10;
std::atomic<bool> g_go{false};

void hold(void*) {
  while (!g_go) usleep(1000);
}

CUdeviceptr new_block(size_t bytes) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, bytes));
  MUST(cuMemsetD8(block, 1, 1024));
  MUST(cuStreamSynchronize(nullptr));
  return block;
}

// An event alone is no work, but nothing tells that of the next call.
void begin_held_work(CUstream stream) {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventRecord(event, stream));
  MUST(cuLaunchHostFunc(stream, hold, nullptr));
}

void end_held_work() {
  g_go = true;
  MUST(cuCtxSynchronize());
}

// All work is over, memory is freed, and work begins that ends only when the host says so.
void free_and_ask_again(bool ordered) {
  const CUstream stream = timed::new_stream();
  const CUdeviceptr block = new_block(kBytes);
  MUST(cuCtxSynchronize());
  if (ordered) {
    MUST(cuMemFreeAsync(block, stream));
    MUST(cuStreamSynchronize(stream));
  } else {
    MUST(cuMemFree(block));
  }
  begin_held_work(stream);
  CUdeviceptr again = 0;
  SAY(cuMemAlloc(&again, kBytes));
  end_held_work();
  SAY(cuMemFree(again));
}

std::vector<CUdeviceptr> new_blocks(size_t each, int count, CUstream stream) {
  std::vector<CUdeviceptr> blocks(count);
  for (CUdeviceptr& block : blocks) {
    MUST(cuMemAlloc(&block, each));
    MUST(cuMemsetD8Async(block, 1, 1024, stream));
  }
  return blocks;
}

// One block takes nearly all the memory that the blocks had.
void ask_for_all(size_t each, int count) {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, each * count / 10 * 9));
}

// All of memory, again and again, by one stream.
void many_ordered() {
  const CUstream stream = timed::new_stream();
  for (int round = 0; round < 10; ++round) {
    for (CUdeviceptr block : new_blocks(kSmall, 90, stream)) MUST(cuMemFreeAsync(block, stream));
    MUST(cuStreamSynchronize(stream));
  }
}

// The same, while a context is current that is not the stream's.
void elsewhere(CUcontext own) {
  const CUstream stream = timed::new_stream();
  const CUcontext other = use_device(1);
  for (int round = 0; round < 100; ++round) {
    MUST(cuCtxSetCurrent(own));
    const CUdeviceptr block = new_blocks(3 * kMiB, 1, stream)[0];
    MUST(cuCtxSetCurrent(other));
    MUST(cuMemFreeAsync(block, stream));
    MUST(cuStreamSynchronize(stream));
  }
}

void captured() {
  const CUstream stream = timed::new_stream(), capturing = timed::new_stream();
  CUgraph graph = nullptr;
  const std::vector<CUdeviceptr> blocks = new_blocks(kSmall, 90, stream);
  MUST(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (CUdeviceptr block : blocks) MUST(cuMemFree(block));
  MUST(cuStreamEndCapture(capturing, &graph));
  MUST(cuMemsetD8Async(new_block(1024), 1, 1024, stream));
  ask_for_all(kSmall, 90);
}

void pinned(CUcontext context) {
  CUcontext other = nullptr;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  MUST(cuCtxSynchronize());
  MUST(cuCtxSetCurrent(context));
  const CUstream stream = timed::new_stream();
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, kBytes, 0));
  MUST(cuMemsetD8(new_block(kMiB), 1, 1024));
  MUST(cuCtxSetCurrent(other));
  MUST(cuCtxSynchronize());
  MUST(cuCtxSetCurrent(context));
  MUST(cuCtxSynchronize());
  MUST(cuMemFreeHost(memory));
  begin_held_work(stream);
  void* again = nullptr;
  SAY(cuMemHostAlloc(&again, kBytes, 0));
  end_held_work();
}

// Beside a context whose work the program waits for by its stream alone.
void pinned_rounds(CUcontext own) {
  const CUdeviceptr to = new_block(8 * kMiB);
  const CUstream stream = timed::new_stream();
  const CUcontext other = use_device(1);
  const CUstream others = timed::new_stream();
  const CUdeviceptr work = new_block(1024);
  for (int round = 0; round < 100; ++round) {
    MUST(cuCtxSetCurrent(own));
    void* memory = nullptr;
    MUST(cuMemHostAlloc(&memory, 8 * kMiB, 0));
    MUST(cuMemcpyHtoDAsync(to, memory, 8 * kMiB, stream));
    MUST(cuStreamSynchronize(stream));
    const Naps naps;
    MUST(cuMemFreeHost(memory));
    if (!naps.few()) std::printf("round %d: a long wait\n", round);
    MUST(cuCtxSetCurrent(other));
    MUST(cuMemsetD8Async(work, 1, 1024, others));
    MUST(cuStreamSynchronize(others));
    if (round % 20 == 19) MUST(cuCtxSynchronize());
  }
}

// The context gets a peer, which had work once.
void enable_peer(CUcontext own) {
  use_device(1);
  MUST(cuCtxEnablePeerAccess(own, 0));
  const CUstream stream = timed::new_stream();
  new_blocks(1024, 1, stream);
  MUST(cuStreamSynchronize(stream));
  MUST(cuCtxSetCurrent(own));
}

// Much more small memory is freed than there is. Nothing ever shows that the peer has no work.
void peer(CUcontext own) {
  enable_peer(own);
  const CUstream stream = timed::new_stream();
  const size_t all = free_memory();
  int failures = 0;
  for (size_t bytes = 0; bytes < 2 * all; bytes += kMiB) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, 600 << 10) != CUDA_SUCCESS) {
      ++failures;
      continue;
    }
    MUST(cuMemsetD8Async(block, 1, 1024, stream));
    MUST(cuMemFree(block));
  }
  std::printf("failures: %d\n", failures);
  std::printf("half of it is free: %d\n", free_memory() > all / 2);
}

// All of memory is freed beside a peer, and asked for at once.
void peer_idle(CUcontext own, bool ordered) {
  enable_peer(own);
  const CUstream stream = timed::new_stream();
  const size_t each = ordered ? 4 * kMiB : kSmall;
  const int count = static_cast<int>(54 * kMiB / each);
  const std::vector<CUdeviceptr> blocks = new_blocks(each, count, stream);
  MUST(cuCtxSynchronize());
  const Naps naps;
  for (CUdeviceptr block : blocks) {
    MUST(ordered ? cuMemFreeAsync(block, stream) : cuMemFree(block));
  }
  std::printf("at once: %d\n", naps.few());
  if (ordered) MUST(cuStreamSynchronize(stream));
  ask_for_all(each, count);
}

// Once there was a copy to another context, which has had no work since.
void copied(CUcontext own) {
  const CUstream stream = timed::new_stream();
  const CUdeviceptr from = new_block(kMiB);
  const CUcontext other = use_device(1);
  const CUdeviceptr to = new_block(kMiB);
  MUST(cuCtxSetCurrent(own));
  MUST(cuMemcpyPeerAsync(to, other, from, own, kMiB, stream));
  MUST(cuCtxSynchronize());
  for (CUdeviceptr block : new_blocks(kSmall, 90, stream)) MUST(cuMemFree(block));
  ask_for_all(kSmall, 90);
}

// A block is freed again while its stream has not reached its free, and once it has.
void twice() {
  const CUstream stream = timed::new_stream();
  for (size_t bytes : {600 << 10, 3 << 20}) {
    g_go = false;
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, bytes));
    begin_held_work(stream);
    MUST(cuMemFreeAsync(block, stream));
    SAY(cuMemFreeAsync(block, stream));
    SAY(cuMemFree(block));
    CUdeviceptr other = 0;
    MUST(cuMemAlloc(&other, bytes));
    std::printf("another one: %d\n", other != block);
    g_go = true;
    MUST(cuStreamSynchronize(stream));
    SAY(cuMemFreeAsync(block, stream));
    SAY(cuMemFree(block));
  }
}

// A free is under way when a capture begins that forbids calls. It has to wait for a peer, too, for
// a copy of another context from that block, or for what its own thread began.
void capture_begins(CUcontext own, const char* beside) {
  const CUdeviceptr block = new_block(kBytes);
  const CUstream stream = timed::new_stream(), capturing = timed::new_stream();
  if (std::strcmp(beside, "peer") == 0) enable_peer(own);
  const bool by_itself = std::strcmp(beside, "by_itself") == 0;
  CUstream works = stream;
  if (std::strcmp(beside, "copy") == 0) {
    const CUcontext other = use_device(1);
    const CUdeviceptr to = new_block(kMiB);
    works = timed::new_stream();
    begin_held_work(works);
    MUST(cuMemcpyPeerAsync(to, other, block, own, kMiB, works));
    MUST(cuCtxSetCurrent(own));
    MUST(cuMemsetD8Async(new_block(1024), 1, 1024, stream));
  } else if (!by_itself) {
    begin_held_work(works);
  }
  std::atomic<pid_t> freeing{0};
  CUresult freed = CUDA_ERROR_UNKNOWN;
  std::thread frees([&] {
    MUST(cuCtxSetCurrent(own));
    if (by_itself) begin_held_work(works);
    freeing = gettid();
    freed = cuMemFree(block);
  });
  await_sleep(freeing);
  CUgraph graph = nullptr;
  MUST(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
  g_go = true;
  frees.join();
  std::printf("freed: %d\n", freed);
  SAY(cuStreamEndCapture(capturing, &graph));
  MUST(cuStreamSynchronize(works));
  MUST(cuCtxSynchronize());
}

// A free waits for its context. Meanwhile another context begins to copy from another block of it,
// behind work that ends only once the free is over.
void copy_begins(CUcontext own) {
  static std::atomic<bool> first{false};
  const CUdeviceptr block = new_block(8 * kMiB), from = new_block(8 * kMiB);
  const CUstream stream = timed::new_stream();
  const CUcontext other = use_device(1);
  const CUdeviceptr to = new_block(kMiB);
  const CUstream others = timed::new_stream();
  MUST(cuCtxSetCurrent(own));
  const auto hold_first = [](void*) {
    while (!first) usleep(1000);
  };
  MUST(cuLaunchHostFunc(stream, hold_first, nullptr));
  std::atomic<pid_t> freeing{0};
  std::thread frees([&] {
    MUST(cuCtxSetCurrent(own));
    freeing = gettid();
    SAY(cuMemFree(block));
    g_go = true;
  });
  await_sleep(freeing);
  MUST(cuCtxSetCurrent(other));
  MUST(cuLaunchHostFunc(others, hold, nullptr));
  MUST(cuMemcpyPeerAsync(to, other, from, own, kMiB, others));
  first = true;
  frees.join();
  SAY(cuCtxSynchronize());
}

bool is(const char* text, const char* name) { return std::strcmp(text, name) == 0; }

std::vector<CUdeviceptr> blocks_apart(const char* kind, size_t each, int count, CUstream stream) {
  const CUstream capturing = timed::new_stream();
  CUgraph graph = nullptr;
  const bool direct = is(kind, "direct");
  if (direct) MUST(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
  const std::vector<CUdeviceptr> blocks = new_blocks(each, count, stream);
  if (direct) MUST(cuStreamEndCapture(capturing, &graph));
  CUipcMemHandle handle;
  for (CUdeviceptr block : blocks) {
    if (is(kind, "exported")) MUST(cuIpcGetMemHandle(&handle, block));
  }
  return blocks;
}

// Half of what is freed during a capture was requested before it.
void apart(const char* kind, size_t each, bool asks_now) {
  const int count = static_cast<int>(52 * kMiB / each);
  const bool open = is(kind, "open_capture");
  const CUstream stuck = timed::new_stream(), stream = timed::new_stream();
  const CUstream capturing = timed::new_stream();
  std::vector<CUdeviceptr> blocks = blocks_apart(kind, each, open ? count / 2 : count, stream);
  begin_held_work(stuck);
  if (open) {
    MUST(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (CUdeviceptr block : new_blocks(each, count / 2, stream)) blocks.push_back(block);
  }
  const Naps naps;
  for (size_t i = 0; i < blocks.size(); ++i) {
    MUST(i % 2 == 0 ? cuMemFreeAsync(blocks[i], stream) : cuMemFreeAsync_ptsz(blocks[i], stream));
  }
  std::printf("at once: %d\n", naps.few());
  SAY(cuMemFreeAsync(blocks[0], stream));
  SAY(cuMemFree(blocks[0]));
  MUST(cuStreamSynchronize(stream));
  CUgraph graph = nullptr;
  if (open) MUST(cuStreamEndCapture(capturing, &graph));
  if (asks_now) ask_for_all(each, count);
  end_held_work();
  if (!asks_now) ask_for_all(each, count);
}

void apart_rounds(const char* kind, size_t each) {
  const CUstream stuck = timed::new_stream(), stream = timed::new_stream();
  const int count = static_cast<int>(free_memory() / 10 * 8 / each);
  if (each >= kMiB) begin_held_work(stuck);
  for (int round = 0; round < 5; ++round) {
    for (CUdeviceptr block : blocks_apart(kind, each, count, stream)) {
      MUST(cuMemFreeAsync(block, stream));
    }
    MUST(cuStreamSynchronize(stream));
  }
  end_held_work();
}

// A driver may keep such memory until a free that waits for all work, which no pool passes on to
// it.
void apart_kept(const char* kind, size_t each) {
  const int count = static_cast<int>(48 * kMiB / each);
  const CUstream stream = timed::new_stream();
  const CUdeviceptr last = new_block(1024);
  new_block(1024);
  for (CUdeviceptr block : blocks_apart(kind, each, count, stream)) {
    MUST(cuMemFreeAsync(block, stream));
  }
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemFree(last));
  ask_for_all(each, count);
}

// Of several threads that free a block at the same time, one does.
void apart_threads(CUcontext context, const char* kind, size_t each) {
  constexpr int kThreads = 4;
  const CUstream stream = timed::new_stream();
  const int count = static_cast<int>(40 * kMiB / each);
  std::atomic<int> freed{0}, refused{0};
  for (int round = 0; round < 10; ++round) {
    const std::vector<CUdeviceptr> blocks = blocks_apart(kind, each, count, stream);
    MUST(cuCtxSynchronize());
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        MUST(cuCtxSetCurrent(context));
        const CUstream own = timed::new_stream();
        for (CUdeviceptr block : blocks) {
          const CUresult code = cuMemFreeAsync(block, own);
          if (code == CUDA_SUCCESS) ++freed;
          if (code == CUDA_ERROR_INVALID_VALUE) ++refused;
        }
        MUST(cuStreamSynchronize(own));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::printf("freed %d, refused %d, of %d\n", freed.load(), refused.load(), 10 * count);
}

// A block that the driver does not free is still the program's.
void apart_refused(const char* kind, size_t each) {
  const CUstream stream = timed::new_stream();
  for (CUdeviceptr block : blocks_apart(kind, each, 4, stream)) {
    if (SAY(cuMemFreeAsync(block, stream)) == CUDA_SUCCESS) continue;
    SAY(cuMemsetD8Async(block, 2, each, stream));
    if (SAY(cuMemFreeAsync(block, stream)) != CUDA_SUCCESS) SAY(cuMemFree(block));
    SAY(cuMemFree(block));
  }
  SAY(cuStreamSynchronize(stream));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  end_if_it_hangs();
  const CUcontext context = use_device(0);
  const auto is = [=](const char* name) { return ::is(argv[1], name); };
  if (is("plain") || is("ordered")) free_and_ask_again(is("ordered"));
  if (is("many_ordered")) many_ordered();
  if (is("elsewhere")) elsewhere(context);
  if (is("captured")) captured();
  if (is("pinned")) pinned(context);
  if (is("pinned_rounds")) pinned_rounds(context);
  if (is("peer")) peer(context);
  if (is("peer_idle") || is("peer_idle_ordered")) peer_idle(context, is("peer_idle_ordered"));
  if (is("copied")) copied(context);
  if (is("capture_begins")) capture_begins(context, argc > 2 ? argv[2] : "");
  if (is("copy_begins")) copy_begins(context);
  if (is("twice")) twice();
  if (is("apart") && argc == 5) {
    const size_t each = std::strtoull(argv[3], nullptr, 10) << 10;
    const auto does = [=](const char* name) { return ::is(argv[4], name); };
    if (does("now") || does("later")) apart(argv[2], each, does("now"));
    if (does("rounds")) apart_rounds(argv[2], each);
    if (does("kept")) apart_kept(argv[2], each);
    if (does("threads")) apart_threads(context, argv[2], each);
    if (does("refused")) apart_refused(argv[2], each);
  }
  std::printf("done\n");
  return 0;
}
