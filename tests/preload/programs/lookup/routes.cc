// SPDX-License-Identifier: Apache-2.0
// Threads whose libraries are bound by different routes get the same blocks and results by each.
//
//   routes THREADS ROUNDS same|crossed
//
// Each thread allocates directly and by a library that was opened with RTLD_DEEPBIND, has kernels
// in flight on its blocks, frees before they end, and forks once. `crossed`: blocks, and those of
// malloc, are freed by the other route, which with a preloaded object is right only if both are
// served. A library in a namespace of its own keeps its own driver meanwhile.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "../check.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

struct Route {
  int (*allocate)(CUdeviceptr*, size_t);
  int (*release)(CUdeviceptr);
  void* (*memory)(size_t);
  void (*give_back)(void*);
};

int allocate_directly(CUdeviceptr* block, size_t bytes) { return cuMemAlloc(block, bytes); }
int release_directly(CUdeviceptr block) { return cuMemFree(block); }

Route by_library(void* library) {
  if (library == nullptr) {
    std::printf("no library: %s\n", dlerror());
    std::exit(1);
  }
  const auto of = [library](auto* function, const char* name) {
    return reinterpret_cast<decltype(function)>(dlsym(library, name));
  };
  return {of(&allocate_directly, "plugin_alloc"), of(&release_directly, "plugin_free"),
          of(&std::malloc, "plugin_malloc"), of(&std::free, "plugin_release")};
}

std::atomic<int> wrong{0};

// Blocks that the routes share.
void exchange_memory(const Route& from, const Route& to, size_t bytes) {
  auto* block = static_cast<char*>(from.memory(bytes));
  std::memset(block, 1, bytes);
  to.give_back(block);
}

void fork_once(const Route& from, const Route& to) {
  const pid_t child = fork();
  if (child == 0) {
    for (size_t bytes = 16; bytes < 300'000; bytes *= 3) exchange_memory(from, to, bytes);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  wrong += status != 0;
}

struct Work {
  CUcontext context;
  const timed::Kernels& kernels;
  Route routes[2], apart;
  int rounds;
  bool crossed;
};

void round_of(const Work& work, const Route& from, const Route& to, CUstream stream,
              uint32_t seed) {
  constexpr size_t kWords = 64;
  CUdeviceptr block = 0, none = 0;
  wrong += from.allocate(&block, kWords * 4 + 1000 * (seed % 300)) != CUDA_SUCCESS;
  MUST(timed::fill_words(work.kernels, stream, block, kWords, seed, /*delay_us=*/20));
  uint32_t words[kWords] = {};
  MUST(cuMemcpyDtoHAsync(words, block, sizeof words, stream));
  MUST(timed::fill_words(work.kernels, stream, block, kWords, ~seed, /*delay_us=*/20));
  wrong += to.release(block) != CUDA_SUCCESS;
  MUST(cuStreamSynchronize(stream));
  for (uint32_t i = 0; i < kWords; ++i) wrong += words[i] != seed + i;
  wrong += work.apart.allocate(&none, 1000) != CUDA_ERROR_NOT_INITIALIZED;
  work.apart.give_back(work.apart.memory(1000));
  exchange_memory(from, to, 20 * (seed % 5000) + 1);
}

void run(const Work& work, unsigned number) {
  MUST(cuCtxSetCurrent(work.context));
  CUstream stream = timed::new_stream();
  Random random(number + 1);
  for (int i = 0; i < work.rounds; ++i) {
    for (int from = 0; from < 2; ++from) {
      const int to = work.crossed ? 1 - from : from;
      round_of(work, work.routes[from], work.routes[to], stream, random.below(1 << 20));
      if (i == work.rounds / 2 && from == 0) fork_once(work.routes[from], work.routes[to]);
    }
  }
  MUST(cuStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  end_if_it_hangs();
  constexpr const char* kLibrary = "libdeepbind_user.so";
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  const timed::Kernels kernels;
  const Work work{context,
                  kernels,
                  {{allocate_directly, release_directly, std::malloc, std::free},
                   by_library(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND))},
                  by_library(dlmopen(LM_ID_NEWLM, kLibrary, RTLD_NOW | RTLD_LOCAL)),
                  std::atoi(argv[2]),
                  std::string_view(argv[3]) == "crossed"};
  std::vector<std::thread> threads;
  for (int i = 0; i < std::atoi(argv[1]); ++i) {
    threads.emplace_back([&work, i] { run(work, static_cast<unsigned>(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("wrong: %d\n", wrong.load());
  return 0;
}
