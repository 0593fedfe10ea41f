// SPDX-License-Identifier: Apache-2.0
// Two threads, and a moment of the one in which the other begins or ends what its free owes.
//
//   debts_threads MODE
//
//   awaited     a thread frees behind a wait for work of another context, and ends; the work does
//               not end before the other thread has submitted more
//   awaited_unseen   the same, in a context that was never seen empty
//   awaited_memory   the same, and the wait is for memory that the other context's stream frees
//   covered     a thread frees, and ends, while the other one is handing over work that does not
//               end before that one has submitted more; the clock moves once it waits there
//   covered_by_third   the same, and a third thread hands that work over
//   overtaken   a thread is stopped by a signal right before its work is put behind its own frees;
//               meanwhile that is over, and the other thread frees
//
// In a run where a thread is late nothing is tested, and nothing wrong is seen.

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "../test_clock.h"
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

CUcontext new_context() {
  CUcontext context = nullptr;
  MUST(cuCtxCreate(&context, nullptr, 0, 0));
  return context;
}

// Work of a context of its own, which is current from then on.
struct Unending {
  CUcontext context = new_context();
  Workplace at;
  CUdeviceptr go = new_block(sizeof(uint32_t));
  CUevent over = new_event();  // the work, once it has begun
  uint32_t seed = 0;

  Unending() {
    MUST(cuMemsetD32Async(go, 0, 1, at.second));
    MUST(cuStreamSynchronize(at.second));
  }
  void begin() {
    size_t count = kWords;
    seed = ++at.seed;
    void* parameters[] = {&at.words, &count, &seed, &go};
    MUST(timed::launch(at.kernels.hold, at.first, parameters));
    MUST(cuEventRecord(over, at.first));
  }
  void end() { MUST(cuMemsetD32Async(go, 1, 1, at.second)); }
  void say_if_done() const {
    MUST(cuCtxSynchronize());
    say_if("the work was done", Workplace::holds(at.words, seed));
  }
};

// With the driver alone the helper is in its free until the work has ended. If its free came back,
// and left the order to the device, nobody could wait for the helper any more.
void awaited(Workplace& here, CUcontext context, Behind behind) {
  Unending work;
  CUmemoryPool pool = new_pool();
  const CUdeviceptr all = take_all(pool, work.at.first);
  if (behind != Behind::event_of_unseen) MUST(cuCtxSynchronize());
  work.begin();
  MUST(cuMemFreeAsync(all, work.at.first));
  std::atomic<pid_t> freeing{0};
  std::atomic<bool> back{false};
  std::thread helper([&] {
    MUST(cuCtxSetCurrent(context));
    const CUdeviceptr block = new_block(1000);
    MUST(cuCtxSynchronize());  // of this context, in which no work is left
    if (behind == Behind::memory) {
      take_all(pool, here.first);
    } else {
      MUST(cuStreamWaitEvent(here.first, work.over, 0));
    }
    freeing = gettid();
    MUST(cuMemFree(block));
    back = true;
  });
  await_sleep(freeing);
  say_if("the free came back before the work ended", back);
  std::fflush(stdout);
  if (back) std::_Exit(1);  // else the next call might never come back
  work.end();
  helper.join();
  work.say_if_done();
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

// The call that takes memory behind the work takes long (SIMCUDA_LATENCY), before its effect and
// after, and its thread is stopped in it. The helper's free has only the helper's work to wait for,
// but what it leaves to the device covers that call by the time anybody looks.
struct HandingOver {
  Unending& work;
  CUcontext context;
  CUmemoryPool pool = new_pool();
  std::atomic<pid_t> thread{0};
  std::atomic<bool> over{false};

  HandingOver(Unending& its_work, CUcontext its_context) : work(its_work), context(its_context) {
    const CUdeviceptr all = take_all(pool, work.at.first);
    MUST(cuCtxSynchronize());
    work.begin();
    MUST(cuMemFreeAsync(all, work.at.first));
  }
  // Where the helper came too late, it waits for the work.
  void take_behind(CUstream stream) {
    MUST(cuCtxSetCurrent(context));
    thread = gettid();
    take_all(pool, stream);
    over = true;
    for (int i = 0; i < 5000 && !g_goes_on; ++i) usleep(1000);
    MUST(cuCtxSetCurrent(work.context));
    if (!g_goes_on) work.end();
  }
  void help(const Workplace& here) {
    MUST(cuCtxSetCurrent(context));
    const CUdeviceptr block = new_block(1000);
    await_sleep(thread);
    tgkill(getpid(), thread, SIGUSR1);
    await([] { return g_stopped.load(); });
    MUST(cuCtxSynchronize());
    MUST(timed::fill_words(here.kernels, here.second, here.words, kWords, 1, /*delay_us=*/0));
    MUST(cuMemFree(block));
    g_goes_on = true;
  }
};

// `by_third`: another thread than the one that goes on and ends the work hands it over. That one
// may still be in its call when this one has begun to wait.
void covered(Workplace& here, CUcontext context, bool by_third) {
  signal(SIGUSR1, stop);
  Unending work;
  HandingOver handing_over(work, context);
  const auto take = [&] { handing_over.take_behind(here.first); };
  std::thread helper([&] { handing_over.help(here); });
  std::thread third([&] { by_third ? take() : static_cast<void>(0); });
  if (!by_third) take();
  helper.join();
  std::atomic<pid_t> goes_on{0};
  std::thread mover([&] {
    await([&] { return handing_over.over.load(); });
    await_sleep(goes_on);
    test_clock::move_ms(11'000);
  });
  goes_on = gettid();
  if (by_third) {
    MUST(cuCtxSetCurrent(context));
    await([&] { return cuStreamQuery(here.first) != CUDA_SUCCESS || handing_over.over; });
  }
  MUST(cuCtxSetCurrent(work.context));
  work.end();
  mover.join();
  third.join();
  work.say_if_done();
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
  if (is("covered")) covered(at, context, false);
  if (is("covered_by_third")) covered(at, context, true);
  if (is("overtaken")) overtaken(at, context);
  return 0;
}
