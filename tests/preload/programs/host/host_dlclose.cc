// SPDX-License-Identifier: Apache-2.0
// A library that allocates when it comes and goes may do so again and again, by four threads.
// host_dlclose TIMES, by all of them.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

// The library's thread-local object ends with the thread, which keeps the library until then.
int in_a_thread_of_its_own() {
  int wrong = 0;
  std::thread([&wrong] {
    void* library = dlopen("libcomes_and_goes.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::puts(dlerror());
      ++wrong;
      return;
    }
    const auto use = reinterpret_cast<int (*)(int)>(dlsym(library, "use_storage"));
    for (int i = 0; i < 20; ++i) wrong += use(i);
    wrong += dlclose(library) != 0;
  }).join();
  return wrong;
}

int at_once() {
  void* library = dlopen("libcomes_and_goes.so", RTLD_LAZY | RTLD_LOCAL);
  return library == nullptr || dlclose(library) != 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int times = argc > 1 ? std::atoi(argv[1]) : 4;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < times / 4; ++k)
        wrong += k % 2 == 0 ? in_a_thread_of_its_own() : at_once();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("wrong: %d\n", wrong.load());
  return 0;
}
