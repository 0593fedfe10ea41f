// SPDX-License-Identifier: Apache-2.0
// Calls every function that Cistern hooks, found by dlsym, before cuInit and after it: with nothing
// but zeros, and with room for answers. Prints each result, and whether something was written. The
// calls are made in a child, and those after one that the driver itself falls over in another
// child.

#include <cuda.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <type_traits>
#include <vector>

namespace {

constexpr size_t kRoom = 65536;
alignas(64) unsigned char room[kRoom];

struct Call {
  const char* name;
  const char* what;
  int (*make)(void* function);
  void* function;
};
std::vector<Call> calls;

template <typename T>
concept Complete = requires {
  sizeof(T);
};

// An argument of this type: room for what is to be written, no handle, and small numbers.
template <typename T>
T argument() {
  if constexpr (std::is_pointer_v<T>) {
    using Target = std::remove_pointer_t<T>;
    if constexpr (std::is_void_v<Target>) {
      return room;
    } else if constexpr (!std::is_function_v<Target> && Complete<Target>) {
      return reinterpret_cast<T>(room);
    }
  }
  if constexpr (std::is_integral_v<T>) return T{1};
  return T{};
}

template <typename... Parameters>
int with_zeros(void* function) {
  return reinterpret_cast<CUresult (*)(Parameters...)>(function)(Parameters{}...);
}

template <typename... Parameters>
int with_room(void* function) {
  return reinterpret_cast<CUresult (*)(Parameters...)>(function)(argument<Parameters>()...);
}

template <typename... Parameters>
void add(void* function, const char* name, CUresult (*)(Parameters...)) {
  if (function == nullptr) {
    std::printf("%s: not there\n", name);
    return;
  }
  calls.push_back({name, "zeros", &with_zeros<Parameters...>, function});
  calls.push_back({name, "room", &with_room<Parameters...>, function});
}

void make_from(size_t* next) {
  while (*next < calls.size()) {
    const Call& call = calls[(*next)++];
    std::fill(std::begin(room), std::end(room), 0);
    std::printf("%s, %s: ", call.name, call.what);
    std::fflush(stdout);
    const int result = call.make(call.function);
    const bool written =
        std::any_of(std::begin(room), std::end(room), [](int byte) { return byte != 0; });
    std::printf("%d%s\n", result, written ? ", written" : "");
  }
  std::fflush(stdout);
}

void call_all() {
  void* shared =
      mmap(nullptr, sizeof(size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (auto* next = static_cast<size_t*>(shared); *next < calls.size();) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      make_from(next);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) std::printf("signal %d\n", WTERMSIG(status));
  }
}

}  // namespace

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 1;
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(driver, "cuInit"));
#define CISTERN_HOOK(symbol, parameters, arguments) \
  add(dlsym(driver, #symbol), #symbol, static_cast<CUresult(*) parameters>(nullptr));
#include "shim/hooks.def"
#undef CISTERN_HOOK
  call_all();
  std::printf("cuInit: %d\n", init(0));
  call_all();
  std::printf("cuInit again: %d\n", init(0));
  return 0;
}
