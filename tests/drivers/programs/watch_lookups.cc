// SPDX-License-Identifier: Apache-2.0
// Preloaded before anything else: writes down what the program and its runtime look up in the
// driver, and what they are answered. It stands between the caller and whatever dlsym and
// cuGetProcAddress come next, Cistern's or the driver's own, so it needs no word of Cistern's about
// itself. A line each, to the file WATCH_FILE:
//
//   ROUTE NAME VERSION FLAGS RESULT OBJECT+OFFSET    (or `-`: nothing was found)

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using Lookup = void* (*)(void*, const char*);
using First = CUresult (*)(const char*, void**, int, cuuint64_t);
using Second = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

First next_first = nullptr;
Second next_second = nullptr;

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

void write_line(const char* route, const char* name, int version, cuuint64_t flags, int result,
                const void* answer) {
  static const int file =
      open(std::getenv("WATCH_FILE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  Dl_info info;
  dprintf(file, "%s %s %d %d %d ", route, *name == '\0' ? "\"\"" : name, version,
          static_cast<int>(flags), result);
  if (answer == nullptr || dladdr(answer, &info) == 0) {
    dprintf(file, "-\n");
  } else {
    dprintf(file, "%s+%zx\n", base_name(info.dli_fname),
            reinterpret_cast<uintptr_t>(answer) - reinterpret_cast<uintptr_t>(info.dli_fbase));
  }
}

// libc's own dlsym says which dlsym comes after this object.
Lookup next_lookup() {
  static const auto next = [] {
    const auto libc = reinterpret_cast<Lookup>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"));
    return reinterpret_cast<Lookup>(libc(RTLD_NEXT, "dlsym"));
  }();
  return next;
}

bool is_driver(const void* code) {
  Dl_info info;
  return dladdr(code, &info) != 0 && std::strncmp(base_name(info.dli_fname), "libcuda.so", 10) == 0;
}

void* watched(const char* name, int version, void* answer);

CUresult first(const char* name, void** answer, int version, cuuint64_t flags) {
  const CUresult result = next_first(name, answer, version, flags);
  const bool found = result == CUDA_SUCCESS && answer != nullptr;
  write_line("cuGetProcAddress", name, version, flags, result, found ? *answer : nullptr);
  if (found) *answer = watched(name, version, *answer);
  return result;
}

CUresult second(const char* name, void** answer, int version, cuuint64_t flags,
                CUdriverProcAddressQueryResult* status) {
  const CUresult result = next_second(name, answer, version, flags, status);
  const bool found = result == CUDA_SUCCESS && answer != nullptr;
  write_line("cuGetProcAddress_v2", name, version, flags, result, found ? *answer : nullptr);
  if (found) *answer = watched(name, version, *answer);
  return result;
}

// What the caller gets: a resolver is kept, and the caller is given the one above in its place.
void* watched(const char* name, int version, void* answer) {
  if (answer == nullptr || std::strncmp(name, "cuGetProcAddress", 16) != 0) return answer;
  if (name[16] != '\0' || version >= 12000) {
    next_second = reinterpret_cast<Second>(answer);
    return reinterpret_cast<void*>(&second);
  }
  next_first = reinterpret_cast<First>(answer);
  return reinterpret_cast<void*>(&first);
}

}  // namespace

extern "C" void* dlsym(void* handle, const char* name) noexcept {
  void* answer = next_lookup()(handle, name);
  if (std::strncmp(name, "cu", 2) != 0 || is_driver(__builtin_return_address(0))) return answer;
  write_line("dlsym", name, 0, 0, 0, answer);
  return watched(name, 0, answer);
}
