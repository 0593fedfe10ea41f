// SPDX-License-Identifier: Apache-2.0
#include "shim/host/host_memory.h"

#include <atomic>
#include <cstdint>

namespace cistern::shim {
namespace {

enum class Whose : uint8_t { unknown, ours, theirs };

// Threads that call this at the same time find the same answer.
template <typename Find>
bool ours(std::atomic<Whose>& known, Find find) {
  Whose whose = known.load(std::memory_order_relaxed);
  if (whose == Whose::unknown) [[unlikely]] {
    whose = find() ? Whose::ours : Whose::theirs;
    known.store(whose, std::memory_order_relaxed);
  }
  return whose == Whose::ours;
}

constexpr const char* kOperators[] = {
#define CISTERN_NEW(symbol, parameters, arguments, alignment) #symbol,
#define CISTERN_DELETE(symbol, parameters, arguments) #symbol,
#include "shim/host/new_delete.def"
#undef CISTERN_NEW
#undef CISTERN_DELETE
};

// The operators of a C++ runtime call malloc, as ours do. A library that brings its own malloc has
// operators for that malloc.
bool gives_way(const link_map* object) {
  return definition_in(object, "__cxa_throw") != nullptr ||
         definition_in(object, "malloc") != nullptr;
}

bool no_others() {
  for (const char* name : kOperators) {
    if (!is_first_definition_ours(name)) return false;
    const link_map* next = definer_after_us(name);
    if (next != nullptr && !gives_way(next)) return false;
  }
  return true;
}

constinit std::atomic<Whose> whose_malloc{Whose::unknown}, whose_operators{Whose::unknown};

}  // namespace

bool malloc_is_ours() {
  return ours(whose_malloc, [] { return is_first_definition_ours("malloc"); });
}

bool operators_are_ours() {
  return ours(whose_operators, [] { return malloc_is_ours() && no_others(); });
}

}  // namespace cistern::shim
