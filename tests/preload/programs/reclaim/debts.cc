// SPDX-License-Identifier: Apache-2.0
// What comes behind a free comes after the work in front of it, though the free does not wait.
// Programs use another stream or thread, ask, take the memory again, end what the work uses.
//
//   debts MODE
//
//   streams     one stream writes, another one reads; each kind of stream
//   again       the freed memory is taken again, and written on another stream
//   asks        an event and a stream are asked, events are timed
//   told        another thread is told of the free, and reads
//   taken       another thread takes memory at once, and writes it
//   ends        what the work may use ends: nothing of it goes on then
//   ended       the thread that freed ends, and others ask or use streams of the same names
//   unordered   work of another thread that the first one's waits for
//   beside      another thread takes and writes what this one frees in bursts
//   streams_end streams end, and others have their handles
//   overlapping a launch that may begin before the one in front of it ends
//   contexts    another context copies
//   graph       a graph reads
//   short       the memory is needed elsewhere: it goes back to the driver, or to other addresses
//   many        more streams than one can keep in mind
//   dead        the work dies, the thread that freed ends, and so does the process
//   bursts      frees and launches take turns
//   synchronised  the thread waits for the context behind its frees

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "../watch_time.h"
#include "debts_workplace.h"

namespace {

void streams(Workplace& at) {
  const CUstream kinds[] = {nullptr, CU_STREAM_PER_THREAD, new_stream(CU_STREAM_DEFAULT),
                            new_stream(CU_STREAM_NON_BLOCKING), at.second};
  int right = 0;
  for (CUstream writes : kinds) {
    for (CUstream reads : kinds) {
      at.write_and_free(writes);
      right += at.read_on(reads);
    }
  }
  std::printf("pairs of streams in order: %d\n", right);
}

void again(Workplace& at) {
  int right = 0;
  for (const size_t bytes : {size_t{1000}, kMiB / 2, 4 * kMiB, 40 * kMiB}) {
    for (int round = 0; round < 4; ++round) {
      CUdeviceptr block = new_block(bytes);
      MUST(timed::fill_words(at.kernels, at.first, block, kWords, 7, kDelayUs));
      MUST(cuMemFree(block));
      block = new_block(bytes);
      MUST(timed::fill_words(at.kernels, at.second, block, kWords, ++at.seed, 0));
      right += Workplace::holds(block, at.seed);
      MUST(cuMemFree(block));
    }
  }
  std::printf("written last: %d\n", right);
}

void asks(Workplace& at) {
  CUevent begin = new_event(), end = new_event();
  for (int round = 0; round < 2; ++round) {
    MUST(cuEventRecord(begin, at.first));
    at.write_and_free(at.first);
    say_if("the stream is done", cuStreamQuery(at.first) == CUDA_SUCCESS);
    MUST(cuEventRecord(begin, at.first));
    at.write_and_free(at.first);
    MUST(cuEventRecord(end, at.second));
    say_if("an event from before is done", cuEventQuery(begin) == CUDA_SUCCESS);
    MUST(cuCtxSynchronize());
    MUST(cuEventRecord(begin, at.first));
    MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, 1, kDelayUs));
    MUST(cuEventRecord(end, at.first));
    MUST(cuMemFree(new_block(1000)));
    float ms = -1;
    say_if("the events can be timed", cuEventElapsedTime(&ms, begin, end) == CUDA_SUCCESS);
  }
}

void told(Workplace& at, CUcontext context) {
  int right = 0;
  for (int round = 0; round < 4; ++round) {
    at.write_and_free(at.first);
    std::thread([&] {
      MUST(cuCtxSetCurrent(context));
      right += at.read_on(at.second);
    }).join();
  }
  std::printf("read by threads: %d\n", right);
}

void taken(Workplace& at, CUcontext context) {
  int right = 0;
  for (int round = 0; round < 4; ++round) {
    const CUdeviceptr freed = new_block(4 * kMiB);
    MUST(timed::fill_words(at.kernels, at.first, freed, kWords, 7, kDelayUs));
    MUST(cuMemFree(freed));
    std::thread([&] {
      MUST(cuCtxSetCurrent(context));
      const CUdeviceptr block = new_block(4 * kMiB);
      MUST(timed::fill_words(at.kernels, at.second, block, kWords, ++at.seed, 0));
      right += Workplace::holds(block, at.seed);
      MUST(cuMemFree(block));
    }).join();
  }
  std::printf("written last: %d\n", right);
}

// Asked by another thread, for which nothing is waited.
bool done(CUcontext context, CUstream stream) {
  bool is = false;
  std::thread([&] {
    MUST(cuCtxSetCurrent(context));
    is = cuStreamQuery(stream) == CUDA_SUCCESS;
  }).join();
  return is;
}

void ends(Workplace& at, CUcontext context) {
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, kernel_image::kImage));
  CUDA_ARRAY_DESCRIPTOR shape{};
  shape.Width = shape.Height = 16;
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  shape.NumChannels = 1;
  CUarray array = nullptr;
  MUST(cuArrayCreate(&array, &shape));
  at.write_and_free(at.first);
  MUST(cuModuleUnload(module));
  say_if("a module", done(context, at.first));
  at.write_and_free(at.first);
  MUST(cuArrayDestroy(array));
  say_if("an array", done(context, at.first));
  at.write_and_free(at.first);
  MUST(cuStreamBeginCapture(at.second, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  say_if("a capture begins", done(context, at.first));
  CUgraph graph = nullptr;
  MUST(cuStreamEndCapture(at.second, &graph));
  CUcontext other = nullptr;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  {
    Workplace there;
    there.write_and_free(there.first);
    MUST(cuCtxSetCurrent(context));
    MUST(cuCtxDestroy(other));
  }
  at.write_and_free(at.first);
  CUipcMemHandle handle;
  MUST(cuIpcGetMemHandle(&handle, at.copy));
  say_if("memory is shared", done(context, at.first));
}

void ended(Workplace& at, CUcontext context) {
  int right = 0;
  CUevent begin = new_event(), end = new_event();
  const CUdeviceptr other = new_block(1000);
  for (int round = 0; round < 6; ++round) {
    std::thread([&] {
      MUST(cuCtxSetCurrent(context));
      const CUdeviceptr block = new_block(1000);
      MUST(cuEventRecord(begin, at.first));
      MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, ++at.seed, kDelayUs));
      MUST(cuEventRecord(end, at.first));
      MUST(cuMemFree(block));
      MUST(timed::fill_words(at.kernels, CU_STREAM_PER_THREAD, other, 1, 1, 0));
    }).join();
    float ms = -1;
    if (round % 2 == 0) {
      right +=
          cuEventQuery(end) == CUDA_SUCCESS && cuEventElapsedTime(&ms, begin, end) == CUDA_SUCCESS;
    } else {
      std::thread([&] {
        MUST(cuCtxSetCurrent(context));
        right += at.read_on(CU_STREAM_PER_THREAD);
      }).join();
    }
    MUST(cuCtxSynchronize());
  }
  std::printf("right after threads that ended: %d\n", right);
}

// The first stream's kernel ends once the other thread's fill was done, which the free does not
// hold up. Where the free comes back first, the fill comes behind it.
void unordered(Workplace& at, CUcontext context) {
  const CUdeviceptr go = new_block(sizeof(uint32_t)), block = new_block(1000);
  MUST(cuMemsetD32(go, 0, 1));
  MUST(cuCtxSynchronize());
  std::atomic<bool> launched{false}, freed{false};
  std::thread other([&] {
    MUST(cuCtxSetCurrent(context));
    while (!launched.load()) std::this_thread::yield();
    for (int i = 0; i < 300 && !freed.load(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    MUST(cuMemsetD32Async(go, 1, 1, at.second));
    MUST(cuStreamSynchronize(at.second));
  });
  size_t count = kWords;
  uint32_t seed = ++at.seed;
  CUdeviceptr words = at.words, until = go;
  void* parameters[] = {&words, &count, &seed, &until};
  MUST(timed::launch(at.kernels.hold, at.first, parameters));
  launched.store(true);
  MUST(cuMemFree(block));
  freed.store(true);
  say_if("it ended", at.read_on(at.first));
  other.join();
  MUST(cuCtxSynchronize());
  at.write_and_free(at.first);
}

// The other thread's words stay what it wrote, though work of before the free wrote the same
// memory.
void beside(Workplace& at, CUcontext context) {
  constexpr int kRounds = 300, kBurst = 40;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread other([&] {
    MUST(cuCtxSetCurrent(context));
    const CUstream stream = timed::new_stream();
    while (!stop.load()) {
      const CUdeviceptr block = new_block(kBytes);
      MUST(cuMemsetD32Async(block, 7, kWords, stream));
      uint32_t host[kWords];
      for (int look = 0; look < 2; ++look) {
        MUST(cuMemcpyDtoHAsync(host, block, kBytes, stream));
        MUST(cuStreamSynchronize(stream));
        for (const uint32_t word : host) wrong += word != 7;
      }
      MUST(cuMemFree(block));
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    CUdeviceptr blocks[kBurst];
    for (CUdeviceptr& block : blocks) block = new_block(kBytes);
    for (CUdeviceptr block : blocks) {
      MUST(timed::fill_words(at.kernels, at.first, block, kWords, 100, /*delay_us=*/20));
    }
    for (CUdeviceptr block : blocks) MUST(cuMemFree(block));
    if (round % 4 == 0) MUST(cuCtxSynchronize());
  }
  stop.store(true);
  other.join();
  std::printf("wrong words: %d\n", wrong.load());
}

void streams_end(Workplace& at) {
  int right = 0;
  for (int round = 0; round < 8; ++round) {
    CUstream stream = timed::new_stream();
    at.write_and_free(at.first);
    right += at.read_on(stream);
    MUST(cuStreamDestroy(stream));
    at.write_and_free(at.first);
    stream = timed::new_stream();
    right += at.read_on(stream);
    MUST(cuStreamDestroy(stream));
  }
  std::printf("read on new streams: %d\n", right);
}

void overlapping(Workplace& at) {
  at.write_and_free(at.first);
  CUdeviceptr total = new_block(2 * sizeof(uint64_t));
  MUST(cuMemsetD8(total, 0, 2 * sizeof(uint64_t)));
  at.write_and_free(at.first);
  size_t count = kWords;
  uint32_t delay_us = 0;
  CUdeviceptr words = at.words;
  void* parameters[] = {&words, &count, &total, &delay_us};
  MUST(timed::launch_early(at.kernels.sum, at.second, parameters));
  uint64_t sum = 0;
  MUST(cuCtxSynchronize());
  MUST(cuMemcpyDtoH(&sum, total, sizeof sum));
  std::printf("the sum: %llu\n", static_cast<unsigned long long>(sum));
}

void contexts(CUcontext context) {
  CUcontext other = nullptr;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  const CUdeviceptr there = new_block(kBytes);
  CUstream stream = timed::new_stream();
  MUST(cuCtxSetCurrent(context));
  Workplace at;
  int right = 0;
  for (int round = 0; round < 3; ++round) {
    at.write_and_free(at.first);
    MUST(cuCtxSetCurrent(other));
    if (round == 0) MUST(cuMemcpyDtoDAsync(there, at.words, kBytes, stream));
    if (round == 1) MUST(cuMemcpyPeerAsync(there, other, at.words, context, kBytes, stream));
    if (round == 2) MUST(cuMemcpyDtoD(there, at.words, kBytes));
    right += Workplace::holds(there, at.seed);
    MUST(cuCtxSetCurrent(context));
    MUST(cuCtxSynchronize());
  }
  std::printf("copied by another context: %d\n", right);
}

void graph(Workplace& at) {
  CUgraph made = nullptr;
  MUST(cuStreamBeginCapture(at.second, CU_STREAM_CAPTURE_MODE_GLOBAL));
  MUST(cuMemcpyDtoDAsync(at.copy, at.words, kBytes, at.second));
  MUST(cuStreamEndCapture(at.second, &made));
  CUgraphExec exec = nullptr;
  MUST(cuGraphInstantiate(&exec, made, 0));
  int right = 0;
  for (int round = 0; round < 3; ++round) {
    at.write_and_free(at.first);
    MUST(cuGraphLaunch(exec, at.second));
    right += Workplace::holds(at.copy, at.seed);
  }
  std::printf("read by a graph: %d\n", right);
}

void many(Workplace& at) {
  constexpr size_t kStreams = 80;
  std::vector<CUstream> all(kStreams);
  for (CUstream& stream : all) stream = timed::new_stream();
  at.write_and_free(at.first);
  MUST(timed::fill_words(at.kernels, at.second, at.copy, kWords, 1, 0));
  MUST(cuStreamSynchronize(at.second));  // behind the debt: it is over
  for (int round = 0; round < 20; ++round) {
    for (CUstream stream : all) {
      MUST(timed::fill_words(at.kernels, stream, at.copy, 0, 1, 0));
    }
  }
  MUST(cuCtxSynchronize());
  std::printf("done\n");
}

void dead(Workplace& at, CUcontext context) {
  std::thread([&] {
    MUST(cuCtxSetCurrent(context));
    const CUdeviceptr block = new_block(1000);
    static_cast<void>(cuMemcpyDtoDAsync(at.copy, at.words, kBytes, at.first));
    static_cast<void>(cuMemFree(block));
  }).join();
  say_if("it works on", cuMemsetD32Async(at.words, 0, kWords, at.second) == CUDA_SUCCESS);
  say_if("it is over", cuCtxSynchronize() == CUDA_SUCCESS);
}

void short_of_memory(Workplace& at) {
  constexpr size_t kBlocks = 9;
  int right = 0;
  for (int round = 0; round < 3; ++round) {
    CUdeviceptr blocks[kBlocks];
    for (CUdeviceptr& block : blocks) block = new_block(20 * kMiB);
    for (CUdeviceptr block : blocks) {
      MUST(timed::fill_words(at.kernels, at.first, block, kWords, 7, kDelayUs));
    }
    for (CUdeviceptr block : blocks) MUST(cuMemFree(block));
    const CUdeviceptr large = new_block(300 * kMiB);
    MUST(timed::fill_words(at.kernels, at.second, large, kWords, ++at.seed, 0));
    right += Workplace::holds(large, at.seed);
    MUST(cuMemFree(large));
  }
  std::printf("written last: %d\n", right);
}

void bursts(Workplace& at) {
  constexpr int kRounds = 100;
  constexpr size_t kBlocks = 8;
  MUST(cuCtxSynchronize());
  for (int round = 0; round < kRounds; ++round) {
    CUdeviceptr blocks[kBlocks];
    for (CUdeviceptr& block : blocks) block = new_block(100'000);
    for (CUdeviceptr block : blocks) {
      MUST(timed::fill_words(at.kernels, at.first, block, kWords, 1, /*delay_us=*/5));
    }
    for (CUdeviceptr block : blocks) MUST(cuMemFree(block));
  }
  std::printf("done\n");
}

// Neither what no submission has met yet nor what one did is owed any more.
void synchronised(Workplace& at) {
  constexpr int kRounds = 10;
  const CUstream third = timed::new_stream();
  MUST(cuCtxSynchronize());
  for (int round = 0; round < kRounds; ++round) {
    at.write_and_free(at.first);
    MUST(cuCtxSynchronize());
    at.write_and_free(at.first);
    MUST(timed::fill_words(at.kernels, at.second, at.copy, kWords, 1, 0));
    MUST(cuCtxSynchronize());
    MUST(timed::fill_words(at.kernels, third, at.copy, kWords, 1, 0));
    MUST(cuCtxSynchronize());
  }
  std::printf("done\n");
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  CUcontext context = use_device(0);
  const auto is = [&](const char* mode) { return argc > 1 && std::strcmp(argv[1], mode) == 0; };
  if (is("contexts")) return contexts(context), 0;
  Workplace at;
  MUST(cuCtxSynchronize());
  if (is("streams")) streams(at);
  if (is("again")) again(at);
  if (is("asks")) asks(at);
  if (is("told")) told(at, context);
  if (is("taken")) taken(at, context);
  if (is("ends")) ends(at, context);
  if (is("ended")) ended(at, context);
  if (is("many")) many(at);
  if (is("dead")) dead(at, context);
  if (is("unordered")) unordered(at, context);
  if (is("beside")) beside(at, context);
  if (is("streams_end")) streams_end(at);
  if (is("overlapping")) overlapping(at);
  if (is("graph")) graph(at);
  if (is("short")) short_of_memory(at);
  if (is("bursts")) bursts(at);
  if (is("synchronised")) synchronised(at);
  return 0;
}
