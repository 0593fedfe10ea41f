// SPDX-License-Identifier: Apache-2.0
// A free waits for work that the host can see, and leaves the order of the rest to the device.
//
//   visible_work MODE
//
//   function    a host function writes, without any pinned memory
//   pinned      pinned memory comes after the free, and is written
//   carried     a small copy brings the address of pinned memory to the device
//   carried_by_several   the same, while work of two threads is under way
//   copies      copies to pinned memory, and a free behind each
//   abroad      another context copies to pinned memory; a stream of the first one waits for that
//   all_abroad  the same, once all work counts as visible, and none is followed by an event
//   early_abroad   another context's kernels may begin early: no event follows those either
//   copies_end  the stream of such a copy ends, and a shorter copy follows on one with its handle

#include <cstring>
#include <thread>

#include "../watch_time.h"
#include "debts_workplace.h"

namespace {

void CUDA_CB write_from_host(void* data) {
  __atomic_store_n(static_cast<uint32_t*>(data), 1, __ATOMIC_RELEASE);
}

void function(Workplace& at) {
  int right = 0;
  for (int round = 0; round < 3; ++round) {
    uint32_t written = 0;
    const CUdeviceptr block = new_block(1000);
    MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, 1, kDelayUs));
    MUST(cuLaunchHostFunc(at.first, write_from_host, &written));
    MUST(cuMemFree(block));
    right += __atomic_load_n(&written, __ATOMIC_ACQUIRE) == 1;
    MUST(cuCtxSynchronize());
  }
  std::printf("written by a host function: %d\n", right);
}

void pinned(Workplace& at) {
  int right = 0;
  for (int round = 0; round < 3; ++round) {
    at.write_and_free(at.first);
    void* memory = new_pinned();
    MUST(cuMemcpyDtoHAsync(memory, at.words, kBytes, at.second));
    MUST(cuMemFree(new_block(1000)));
    right += static_cast<const volatile uint32_t*>(memory)[0] == at.seed;
    MUST(cuMemFreeHost(memory));
  }
  std::printf("read in pinned memory: %d\n", right);
}

void carried(Workplace& at) {
  uint32_t* memory = new_pinned();
  MUST(cuCtxSynchronize());
  for (int round = 0; round < 10; ++round) at.write_and_free(at.first);
  std::printf("in order\n");
  MUST(cuMemcpyHtoD(at.copy, &memory, sizeof memory));
  for (int round = 0; round < 10; ++round) at.write_and_free(at.first);
  std::printf("waited for\n");
}

void carried_by_several(Workplace& at, CUcontext context) {
  uint32_t* memory = new_pinned();
  const CUdeviceptr table = new_block(kBytes);
  MUST(cuCtxSynchronize());
  std::thread([&] {
    MUST(cuCtxSetCurrent(context));
    MUST(timed::fill_words(at.kernels, at.second, at.copy, kWords, 1, kDelayUs));
  }).join();
  for (int i = 0; i < 4; ++i) {
    MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, 1, kDelayUs));
  }
  MUST(cuMemcpyHtoD(table, &memory, sizeof memory));
  MUST(cuCtxSynchronize());
  for (int round = 0; round < 10; ++round) at.write_and_free(at.first);
  std::printf("waited for\n");
}

void copies(Workplace& at) {
  uint32_t* memory = new_pinned();
  int right = 0;
  MUST(cuCtxSynchronize());
  for (int round = 0; round < 10; ++round) {
    const CUdeviceptr block = new_block(1000);
    MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, ++at.seed, kDelayUs));
    MUST(cuMemcpyDtoHAsync(memory, at.words, kBytes, at.first));
    MUST(timed::fill_words(at.kernels, at.second, at.copy, kWords, 1, kDelayUs));
    MUST(cuMemFree(block));
    right += static_cast<const volatile uint32_t*>(memory)[0] == at.seed;
  }
  std::printf("read behind a free: %d\n", right);
}

enum class Abroad : uint8_t { copies, all_visible, early };

// A free in the first context waits for its stream, and so for the other context's work. A
// synchronisation of the first one alone shows nothing of that.
void abroad(Workplace& at, CUcontext context, Abroad how) {
  uint32_t* memory = new_pinned();
  CUcontext other = nullptr;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  Workplace there;
  CUevent done = new_event();
  MUST(cuCtxSynchronize());
  MUST(cuCtxSetCurrent(context));
  MUST(cuCtxSynchronize());
  if (how == Abroad::all_visible) MUST(cuMemcpyHtoD(at.copy, &memory, sizeof memory));
  const auto on_host = reinterpret_cast<CUdeviceptr>(memory);
  int right = 0;
  for (int round = 0; round < 10; ++round) {
    const CUdeviceptr block = new_block(1000);
    MUST(cuCtxSetCurrent(other));
    MUST(timed::fill_words(there.kernels, there.first, there.words, kWords, ++at.seed, kDelayUs));
    if (how == Abroad::early) {
      MUST(timed::fill_words_early(there.kernels, there.first, on_host, kWords, at.seed, kDelayUs));
    } else {
      MUST(cuMemcpyDtoHAsync(memory, there.words, kBytes, there.first));
    }
    MUST(cuEventRecord(done, there.first));
    MUST(cuCtxSetCurrent(context));
    if (how != Abroad::copies) MUST(cuCtxSynchronize());
    MUST(cuStreamWaitEvent(at.first, done, 0));
    MUST(cuMemFree(block));
    right += static_cast<const volatile uint32_t*>(memory)[0] == at.seed;
  }
  std::printf("read behind a free: %d\n", right);
}

void copies_end(Workplace& at) {
  uint32_t *memory = new_pinned(), *other = new_pinned();
  int right = 0;
  MUST(cuCtxSynchronize());
  for (int round = 0; round < 8; ++round) {
    const CUdeviceptr block = new_block(1000);
    CUstream stream = timed::new_stream();
    MUST(timed::fill_words(at.kernels, stream, at.words, kWords, ++at.seed, kDelayUs));
    MUST(cuMemcpyDtoHAsync(memory, at.words, kBytes, stream));
    MUST(cuStreamDestroy(stream));
    stream = timed::new_stream();
    MUST(cuMemcpyDtoHAsync(other, at.copy, kBytes, stream));
    MUST(cuMemFree(block));
    right += static_cast<const volatile uint32_t*>(memory)[0] == at.seed;
    MUST(cuStreamDestroy(stream));
  }
  std::printf("read behind a free: %d\n", right);
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  CUcontext context = use_device(0);
  const auto is = [&](const char* mode) { return argc > 1 && std::strcmp(argv[1], mode) == 0; };
  Workplace at;
  MUST(cuCtxSynchronize());
  if (is("function")) function(at);
  if (is("pinned")) pinned(at);
  if (is("carried")) carried(at);
  if (is("carried_by_several")) carried_by_several(at, context);
  if (is("copies")) copies(at);
  if (is("abroad")) abroad(at, context, Abroad::copies);
  if (is("all_abroad")) abroad(at, context, Abroad::all_visible);
  if (is("early_abroad")) abroad(at, context, Abroad::early);
  if (is("copies_end")) copies_end(at);
  return 0;
}
