// SPDX-License-Identifier: Apache-2.0
// Two threads, and a moment of the one in which the other begins or ends what its free owes.
//
//   debts_threads MODE
//
//   awaited     a thread frees behind a wait for work of another context, and ends; the work does
//               not end before the other thread has submitted more
//   awaited_unseen   the same, in a context that was never seen empty
//   awaited_memory   the same, and the wait is for memory that the other context's stream frees
//   overtaken   a thread is stopped by a signal right before its work is put behind its own frees;
//               meanwhile that is over, and the other thread frees
//
// In a run where a thread is late nothing is tested, and nothing wrong is seen.

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "../watch_time.h"
#include "debts_workplace.h"

namespace {

// What the helper's stream waits for.
enum class Behind { event, event_of_unseen, memory };

constexpr size_t kWholePool = size_t{2} << 20;

CUmemoryPool new_pool() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  props.maxSize = kWholePool;
  CUmemoryPool pool = nullptr;
  MUST(cuMemPoolCreate(&pool, &props));
  return pool;
}

CUdeviceptr take_all(CUmemoryPool pool, CUstream stream) {
  CUdeviceptr block = 0;
  MUST(cuMemAllocFromPoolAsync(&block, kWholePool, pool, stream));
  return block;
}

// With the driver alone the helper is in its free until the work has ended. If its free came back,
// and left the order to the device, nobody could wait for the helper any more.
void awaited(Workplace& here, CUcontext context, Behind behind) {
  CUcontext other = nullptr;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  Workplace at;
  CUdeviceptr go = new_block(sizeof(uint32_t)), words = at.words;
  MUST(cuMemsetD32Async(go, 0, 1, at.second));
  MUST(cuStreamSynchronize(at.second));
  CUevent over = new_event();
  CUmemoryPool pool = new_pool();
  const CUdeviceptr all = take_all(pool, at.first);
  if (behind != Behind::event_of_unseen) MUST(cuCtxSynchronize());
  size_t count = kWords;
  uint32_t seed = ++at.seed;
  void* parameters[] = {&words, &count, &seed, &go};
  MUST(timed::launch(at.kernels.hold, at.first, parameters));
  MUST(cuEventRecord(over, at.first));
  MUST(cuMemFreeAsync(all, at.first));
  std::atomic<pid_t> freeing{0};
  std::atomic<bool> back{false};
  std::thread helper([&] {
    MUST(cuCtxSetCurrent(context));
    const CUdeviceptr block = new_block(1000);
    MUST(cuCtxSynchronize());  // of this context, in which no work is left
    if (behind == Behind::memory) {
      take_all(pool, here.first);
    } else {
      MUST(cuStreamWaitEvent(here.first, over, 0));
    }
    freeing = gettid();
    MUST(cuMemFree(block));
    back = true;
  });
  await_sleep(freeing);
  say_if("the free came back before the work ended", back);
  std::fflush(stdout);
  if (back) std::_Exit(1);  // else the next call might never come back
  MUST(cuMemsetD32Async(go, 1, 1, at.second));
  helper.join();
  MUST(cuCtxSynchronize());
  say_if("the work was done", Workplace::holds(at.words, seed));
}

std::atomic<bool> g_stopped{false}, g_goes_on{false}, g_back{false};

// Not longer than five seconds: a thread that was stopped elsewhere may hold up the others.
void stop(int /*signal*/) {
  g_stopped = true;
  for (int i = 0; i < 5000 && !g_goes_on; ++i) usleep(1000);
  g_back = true;
}

template <typename Condition>
void await(Condition condition) {
  while (!condition()) usleep(100);
}

// Questions about events take long (SIMCUDA_LATENCY): the second thread, whose work comes behind
// the first one's frees, asks whether that is over, and the first one cannot go on meanwhile.
void overtaken(Workplace& at, CUcontext context) {
  signal(SIGUSR1, stop);
  const CUstream streams[] = {at.first, at.second};
  const CUdeviceptr words[] = {at.words, at.copy};
  const CUdeviceptr block = new_block(1000), others = new_block(1000);
  const auto fill = [&](int thread) {
    MUST(timed::fill_words(at.kernels, streams[thread], words[thread], kWords, 1, /*delay_us=*/0));
  };
  std::atomic<pid_t> asks{0}, submits{0};
  std::atomic<bool> owes{false};
  std::thread first([&] {
    MUST(cuCtxSetCurrent(context));
    fill(0);
    MUST(cuMemFree(block));
    fill(0);  // behind the free
    owes = true;
    await_sleep(asks);
    submits = gettid();
    fill(0);
    await([] { return g_back.load(); });
  });
  std::thread second([&] {
    MUST(cuCtxSetCurrent(context));
    await([&] { return owes && cuStreamQuery(streams[0]) == CUDA_SUCCESS; });
    asks = gettid();
    fill(1);
    await([] { return g_stopped.load(); });
    MUST(cuCtxSynchronize());
    fill(1);
    MUST(cuMemFree(others));
    g_goes_on = true;
    await([] { return g_back.load(); });
  });
  await_sleep(submits);
  pthread_kill(first.native_handle(), SIGUSR1);
  first.join();
  second.join();
  MUST(cuCtxSynchronize());
  std::printf("done\n");
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  CUcontext context = use_device(0);
  const auto is = [&](const char* mode) { return argc > 1 && std::strcmp(argv[1], mode) == 0; };
  Workplace at;
  MUST(cuCtxSynchronize());
  if (is("awaited")) awaited(at, context, Behind::event);
  if (is("awaited_unseen")) awaited(at, context, Behind::event_of_unseen);
  if (is("awaited_memory")) awaited(at, context, Behind::memory);
  if (is("overtaken")) overtaken(at, context);
  return 0;
}
