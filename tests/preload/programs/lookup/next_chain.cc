// SPDX-License-Identifier: Apache-2.0
// Chains of dlsym(RTLD_NEXT) lead on as they do without the object.
// Two libraries that hand a call on by dlsym(RTLD_NEXT), called from several threads; and the
// answers of dlsym, dlvsym and dlerror that programs rely on.

#include <dlfcn.h>

#include <cstdio>
#include <thread>

int main() {
  void* first_library = dlopen("libchain_first.so", RTLD_NOW | RTLD_GLOBAL);
  if (first_library == nullptr) {
    std::printf("no libraries: %s\n", dlerror());
    return 1;
  }
  const auto chained = reinterpret_cast<int (*)()>(dlsym(first_library, "chained"));
  std::printf("chain %d\n", chained());
  int results[2] = {};
  std::thread first([&] { results[0] = chained(); });
  std::thread second([&] { results[1] = chained(); });
  first.join();
  second.join();
  std::printf("from threads %d %d\n", results[0], results[1]);

  std::printf("next of the program: %d\n", dlsym(RTLD_NEXT, "chained") != nullptr);
  std::printf("versioned: %d\n", dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5") != nullptr);
  std::printf("wrong version: %d, ", dlvsym(RTLD_DEFAULT, "memcpy", "NO_SUCH_1") != nullptr);
  std::printf("error set: %d\n", dlerror() != nullptr);
  std::printf("missing: %d, ", dlsym(RTLD_DEFAULT, "no_such_name") != nullptr);
  std::printf("error set: %d, ", dlerror() != nullptr);
  std::printf("cleared: %d\n", dlerror() == nullptr);
  std::printf("dlsym finds dlsym: %d\n", dlsym(RTLD_DEFAULT, "dlsym") != nullptr);
  return 0;
}
