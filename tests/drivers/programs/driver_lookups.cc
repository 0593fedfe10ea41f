// SPDX-License-Identifier: Apache-2.0
// Looks up the names of a file in every way there is, and prints where each answer lies. A line of
// the file is `symbol NAME` for dlsym and dlvsym, or `name NAME` for cuGetProcAddress. That is
// asked for every version of CUDA; a line is printed where the answer is not that for the version
// before.

#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

namespace {

using First = CUresult (*)(const char*, void**, int, cuuint64_t);
using Second = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

std::string place(const void* function) {
  Dl_info info;
  if (function == nullptr || dladdr(function, &info) == 0) return "-";
  const char* slash = std::strrchr(info.dli_fname, '/');
  char offset[20];
  std::snprintf(
      offset, sizeof offset, "+%zx",
      reinterpret_cast<uintptr_t>(function) - reinterpret_cast<uintptr_t>(info.dli_fbase));
  return (slash == nullptr ? info.dli_fname : slash + 1) + std::string(offset);
}

template <typename Ask>
void resolve(const char* route, const std::string& name, int flags, Ask ask) {
  std::string before;
  for (int version = 2000; version < 14000; version += version % 1000 < 90 ? 10 : 910) {
    void* function = nullptr;
    const std::string result = ask(&function, version);
    const std::string answer = result + " " + place(function);
    if (answer != before) {
      std::cout << route << " " << name << " " << version << " " << flags << " " << answer << "\n";
    }
    before = answer;
  }
}

}  // namespace

int main(int, char** argv) {
  std::ifstream names(argv[1]);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) return 1;
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(driver, "cuInit"));
  std::cout << "call cuInit 0 0 " << init(0) << " -\n";
  const auto first = reinterpret_cast<First>(dlsym(driver, "cuGetProcAddress"));
  const auto second = reinterpret_cast<Second>(dlsym(driver, "cuGetProcAddress_v2"));
  std::string kind, name;
  while (names >> kind >> name) {
    const char* text = name.c_str();
    if (kind == "symbol") {
      const auto tell = [&](const char* route, void* answer) {
        const char* error = dlerror();
        std::cout << route << " " << name << " 0 0 " << (error != nullptr) << " " << place(answer)
                  << "\n";
      };
      dlerror();
      tell("dlsym", dlsym(driver, text));
      tell("dlsym-default", dlsym(RTLD_DEFAULT, text));
      tell("dlsym-next", dlsym(RTLD_NEXT, text));
      tell("dlvsym", dlvsym(driver, text, "libcuda.so.1"));
      tell("dlvsym-next", dlvsym(RTLD_NEXT, text, "libcuda.so.1"));
      continue;
    }
    for (const int flags : {0, 1, 2, 3}) {
      resolve("cuGetProcAddress", name, flags, [&](void** function, int version) {
        return std::to_string(first(text, function, version, static_cast<cuuint64_t>(flags)));
      });
      if (second == nullptr) continue;
      resolve("cuGetProcAddress_v2", name, flags, [&](void** function, int version) {
        CUdriverProcAddressQueryResult status{};
        const int result = second(text, function, version, static_cast<cuuint64_t>(flags), &status);
        return std::to_string(result) + "/" + std::to_string(status);
      });
    }
  }
  return 0;
}
