// SPDX-License-Identifier: Apache-2.0
// Look-ups find what they would without the object, whatever other libraries do.
// `unloading`: no driver is loaded, and libraries come and go while threads ask for a function of
// one. `own`: a library that was preloaded before has a function that the driver lacks.

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace {

void unloading() {
  std::atomic<bool> over{false};
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!over) {
        found += dlsym(RTLD_NEXT, "cuMemAlloc_v2") != nullptr;
        found += dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != nullptr;
      }
    });
  }
  int missing = 0;
  for (int i = 0; i < 3000; ++i) {
    void* library = dlopen("libown_function.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || dlclose(library) != 0) ++missing;
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("libraries missing: %d, functions found: %d\n", missing, found.load());
}

void own() {
  const auto call = [](const char* when) {
    const auto function = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "cuMemAllocAsync"));
    std::printf("%s the driver is loaded: %d\n", when, function == nullptr ? 0 : function());
  };
  call("before");
  std::printf("driver: %d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != nullptr);
  call("after");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "unloading") == 0) unloading();
  if (argc == 2 && std::strcmp(argv[1], "own") == 0) own();
  return 0;
}
