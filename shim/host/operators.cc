// SPDX-License-Identifier: Apache-2.0
// C++'s operators new and delete, which must match malloc. The program may be linked with a library
// that brings its own malloc and operators. Without ours, those operators would return blocks that
// come to our free(). They work like the C++ runtime's defaults. If there is no memory, they call
// the runtime's own operator: it calls our malloc again, then the program's new-handler, and
// throws, since exceptions are the runtime's. Any thread.
#include <jemalloc/jemalloc.h>
#include <malloc.h>

#include <bit>
#include <cstddef>

#include "shim/entry/loader.h"
#include "shim/host/host_memory.h"

namespace cistern::shim {
namespace {

// nullptr: no memory, or an invalid alignment.
void* allocate(size_t bytes, size_t alignment) {
  if (alignment == 0) return malloc(bytes);
  return std::has_single_bit(alignment) ? memalign(alignment, bytes) : nullptr;
}

// A caller of an operator has a C++ runtime. nullptr: the runtime is linked into the program and
// hidden there.
template <typename Function>
Function* of_runtime(const char* symbol) {
  return reinterpret_cast<Function*>(first_definition_beside("__cxa_throw", symbol));
}

}  // namespace
}  // namespace cistern::shim

// Declared under their mangled names: as C++ operators they would promise the compiler more than
// they need to.
#define CISTERN_NEW(symbol, parameters, arguments, alignment_)                                \
  [[gnu::visibility("default")]] void* operator_##symbol parameters asm(#symbol);             \
  void* operator_##symbol parameters {                                                        \
    using namespace cistern::shim; /* NOLINT(google-build-using-namespace): its other face */ \
    using Function = void* parameters;                                                        \
    if (!operators_are_ours()) [[unlikely]] {                                                 \
      if (auto* next = next_of_family<Function>(#symbol)) return next arguments;              \
    }                                                                                         \
    void* block = allocate(bytes, alignment_);                                                \
    if (block != nullptr) [[likely]]                                                          \
      return block;                                                                           \
    auto* runtimes = of_runtime<Function>(#symbol);                                           \
    return runtimes == nullptr ? nullptr : runtimes arguments;                                \
  }

#define CISTERN_DELETE(symbol, parameters, arguments)                                         \
  [[gnu::visibility("default")]] void operator_##symbol parameters asm(#symbol);              \
  void operator_##symbol parameters {                                                         \
    using namespace cistern::shim; /* NOLINT(google-build-using-namespace): its other face */ \
    if (!operators_are_ours()) [[unlikely]] {                                                 \
      if (auto* next = next_of_family<void parameters>(#symbol)) return next arguments;       \
    }                                                                                         \
    free(block);                                                                              \
  }

#include "shim/host/new_delete.def"
