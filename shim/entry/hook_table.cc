// SPDX-License-Identifier: Apache-2.0
#include "shim/entry/hook_table.h"

#include <algorithm>
#include <array>
#include <cstdint>
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

// The rows in the order of their names, which find_hook() searches.
constexpr auto kByName = [] {
  std::array<uint16_t, std::size(kNames)> rows{};
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i);
  std::sort(rows.begin(), rows.end(), [](size_t a, size_t b) { return kNames[a] < kNames[b]; });
  return rows;
}();

}  // namespace

HookTable hooks() { return {table, std::size(table)}; }

const Hook* find_hook(const char* symbol) {
  const auto* row = std::lower_bound(
      kByName.begin(), kByName.end(), symbol,
      [](uint16_t i, const char* name) { return strcmp(table[i].symbol, name) < 0; });
  if (row == kByName.end() || strcmp(table[*row].symbol, symbol) != 0) return nullptr;
  return &table[*row];
}

}  // namespace cistern::shim
