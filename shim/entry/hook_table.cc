// SPDX-License-Identifier: Apache-2.0
#include "shim/entry/hook_table.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shim/entry/faces.h"

namespace cistern::shim {
namespace {

const Hook table[] = {
#define CISTERN_HOOK(symbol, parameters, arguments) {#symbol, reinterpret_cast<void*>(&::symbol)},
#include "shim/hooks.def"
#undef CISTERN_HOOK
};

constexpr std::string_view kNames[] = {
#define CISTERN_HOOK(symbol, parameters, arguments) #symbol,
#include "shim/hooks.def"
#undef CISTERN_HOOK
};
static_assert(std::is_sorted(std::begin(kNames), std::end(kNames)), "find_hook searches by name");

}  // namespace

HookTable hooks() { return {table, std::size(table)}; }

const Hook* find_hook(const char* symbol) {
  const auto* end = std::end(table);
  const auto* hook =
      std::lower_bound(std::begin(table), end, symbol,
                       [](const Hook& h, const char* s) { return strcmp(h.symbol, s) < 0; });
  return hook != end && strcmp(hook->symbol, symbol) == 0 ? hook : nullptr;
}

}  // namespace cistern::shim
