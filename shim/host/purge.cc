// SPDX-License-Identifier: Apache-2.0
// The program asks for memory to go back to the system: by mallctl("arena.<i>.purge") or ".decay",
// as programs that know jemalloc do, or by malloc_trim(). jemalloc gives what it has to the pool
// then, and the pool to the system.
#include <jemalloc/jemalloc.h>

#include <cstddef>
#include <cstring>

#include "shim/host/host_memory.h"
#include "shim/host/large_blocks.h"

extern "C" {

int jemalloc_mallctl(const char* name, void* old, size_t* old_size, void* wanted, size_t size);
int jemalloc_mallctlbymib(const size_t* mib, size_t length, void* old, size_t* old_size,
                          void* wanted, size_t size);

}  // extern "C"

namespace cistern::shim {
namespace {

// "arena.<i>.purge" or "arena.<i>.decay".
bool gives_back(const char* name) {
  constexpr char kArena[] = "arena.";
  if (strncmp(name, kArena, sizeof kArena - 1) != 0) return false;
  const char* verb = strchr(name + sizeof kArena - 1, '.');
  return verb != nullptr && (strcmp(verb, ".purge") == 0 || strcmp(verb, ".decay") == 0);
}

// jemalloc has numbers for the parts of a name.
bool gives_back(const size_t* mib, size_t length) {
  constexpr size_t kParts = 3;
  if (length != kParts) return false;
  for (const char* name : {"arena.0.purge", "arena.0.decay"}) {
    size_t known[kParts], parts = kParts;
    if (mallctlnametomib(name, known, &parts) != 0) continue;
    if (mib[0] == known[0] && mib[2] == known[2]) return true;
  }
  return false;
}

template <typename Call>
int giving_back(Call call) {
  give_back_kept_blocks(/*for_good=*/false);
  const int code = call();
  if (code == 0) host_pool().release_idle(0);
  return code;
}

}  // namespace
}  // namespace cistern::shim

extern "C" {

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): its other face

[[gnu::visibility("default")]] int mallctl(const char* name, void* old, size_t* old_size,
                                           void* wanted, size_t size) {
  const auto call = [&] { return jemalloc_mallctl(name, old, old_size, wanted, size); };
  return gives_back(name) ? giving_back(call) : call();
}

[[gnu::visibility("default")]] int mallctlbymib(const size_t* mib, size_t length, void* old,
                                                size_t* old_size, void* wanted, size_t size) {
  const auto call = [&] { return jemalloc_mallctlbymib(mib, length, old, old_size, wanted, size); };
  return gives_back(mib, length) ? giving_back(call) : call();
}

// As the C library's: 1 if memory went back. How much of it is to stay is left to the pool.
[[gnu::visibility("default")]] int malloc_trim(size_t) {
  jemalloc_mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
  const uint64_t before = host_pool().usage().released;
  giving_back([] {
    return jemalloc_mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // of all arenas
  });
  return host_pool().usage().released != before ? 1 : 0;
}

}  // extern "C"
