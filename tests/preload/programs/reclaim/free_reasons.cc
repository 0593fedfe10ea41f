// SPDX-License-Identifier: Apache-2.0
// Frees behind work, once for each reason for which they wait for all of it, or need not.
//
//   free_reasons MODE
//
//   idle      no work at all
//   plain     work of one thread, which the host does not see
//   burst     the same, and several frees behind it
//   capture   a stream captures
//   peers     peer access is enabled
//   ties      another context copies from this one
//   threads   another thread's work is unfinished, too
//   turns     two threads take turns, each with work and frees of its own
//   unknown   before anything was synchronised
//   careful   a function was called that no table knows
//   sees      copies to pinned memory
//   query, submission, end_of_use, release, exit: what waits for the work in front of a free

#include <barrier>
#include <cstring>
#include <thread>

#include "../watch_time.h"
#include "debts_workplace.h"
#include "simcuda/unknown.h"

namespace {

constexpr int kFrees = 5;

void plain(Workplace& at) {
  for (int i = 0; i < kFrees; ++i) at.write_and_free(at.first);
}

void idle() {
  for (int i = 0; i < kFrees; ++i) MUST(cuMemFree(new_block(1000)));
}

void burst(Workplace& at) {
  CUdeviceptr blocks[kFrees];
  for (CUdeviceptr& block : blocks) block = new_block(1000);
  MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, 1, kDelayUs));
  for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
}

// So many pieces of work that the first question about them does not find all of them done.
void work_long(Workplace& at) {
  for (int i = 0; i < 200; ++i) {
    MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, 1, /*delay_us=*/0));
  }
}

void long_and_free(Workplace& at) {
  const CUdeviceptr block = new_block(1000);
  work_long(at);
  MUST(cuMemFree(block));
}

void capture(Workplace& at) {
  CUgraph graph = nullptr;
  const CUdeviceptr block = new_block(1000);
  MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, 1, kDelayUs));
  MUST(cuStreamBeginCapture(at.second, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuMemFree(block));
  MUST(cuStreamEndCapture(at.second, &graph));
}

void ties(Workplace& at, CUcontext context) {
  CUcontext other = nullptr;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  const CUdeviceptr there = new_block(kBytes);
  const CUstream stream = timed::new_stream();
  MUST(cuCtxSetCurrent(context));
  const CUdeviceptr block = new_block(1000);
  MUST(cuCtxSynchronize());
  MUST(cuCtxSetCurrent(other));
  MUST(cuMemcpyPeerAsync(there, other, at.words, context, kBytes, stream));
  MUST(cuCtxSetCurrent(context));
  MUST(cuMemFree(block));
}

void fill_elsewhere(Workplace& at, CUcontext context) {
  std::thread([&] {
    MUST(cuCtxSetCurrent(context));
    MUST(timed::fill_words(at.kernels, at.second, at.copy, kWords, 1, kDelayUs));
  }).join();
}

void threads(Workplace& at, CUcontext context) {
  const CUdeviceptr block = new_block(1000);
  MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, 1, kDelayUs));
  fill_elsewhere(at, context);
  MUST(cuMemFree(block));
}

void turns(Workplace& at, CUcontext context) {
  constexpr int kTurns = 4;
  std::barrier turn(2);
  std::thread other([&] {
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < kTurns; ++i) {
      turn.arrive_and_wait();
      plain(at);
      turn.arrive_and_wait();
    }
  });
  for (int i = 0; i < kTurns; ++i) {
    plain(at);
    turn.arrive_and_wait();
    turn.arrive_and_wait();
  }
  other.join();
}

void careful(Workplace& at) {
  const CUdeviceptr block = new_block(1000);
  MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, 1, kDelayUs));
  void* function = nullptr;
  MUST(cuGetProcAddress("cuUnknownVariadic", &function, 13000, 0, nullptr));
  double sum = 0;
  MUST(reinterpret_cast<decltype(&cuUnknownVariadic)>(function)(&sum, 0));
  MUST(cuMemFree(block));
}

void sees(Workplace& at) {
  uint32_t* memory = new_pinned();
  MUST(cuCtxSynchronize());
  for (int i = 0; i < kFrees; ++i) {
    const CUdeviceptr block = new_block(1000);
    MUST(cuMemcpyDtoHAsync(memory, at.words, kBytes, at.first));
    MUST(cuMemFree(block));
  }
}

// A launch that may begin before the one in front of it ends.
void submission(Workplace& at) {
  size_t count = kWords;
  uint32_t delay_us = 0;
  CUdeviceptr words = at.words, total = new_block(2 * sizeof(uint64_t));
  void* parameters[] = {&words, &count, &total, &delay_us};
  MUST(cuCtxSynchronize());
  long_and_free(at);
  MUST(timed::launch_early(at.kernels.sum, at.second, parameters));
}

void release(Workplace& at) {
  const CUdeviceptr block = new_block(200 * kMiB);
  work_long(at);
  MUST(cuMemFree(block));
  new_block(220 * kMiB);
}

void end_of_use(Workplace& at) {
  long_and_free(at);
  MUST(cuStreamDestroy(at.second));
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, kernel_image::kImage));
  MUST(cuModuleUnload(module));
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  const auto is = [&](const char* mode) { return argc > 1 && std::strcmp(argv[1], mode) == 0; };
  CUcontext peer = is("peers") ? use_device(1) : nullptr;
  CUcontext context = use_device(0);
  Workplace at;
  if (!is("unknown")) MUST(cuCtxSynchronize());
  if (is("peers")) MUST(cuCtxEnablePeerAccess(peer, 0));
  if (is("plain") || is("peers") || is("unknown")) plain(at);
  if (is("idle")) idle();
  if (is("burst")) burst(at);
  if (is("capture")) capture(at);
  if (is("ties")) ties(at, context);
  if (is("threads")) threads(at, context);
  if (is("turns")) turns(at, context);
  if (is("careful")) careful(at);
  if (is("sees")) sees(at);
  if (is("query") || is("exit") || is("asked")) long_and_free(at);
  if (is("query") || is("asked")) MUST(cuStreamQuery(at.first));
  if (is("submission")) submission(at);
  if (is("release")) release(at);
  if (is("end_of_use")) end_of_use(at);
  if (!is("exit") && !is("asked")) MUST(cuCtxSynchronize());
  std::printf("done\n");
  return 0;
}
