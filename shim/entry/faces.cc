// SPDX-License-Identifier: Apache-2.0
#include "shim/entry/faces.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "config/known.h"

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

using config::name_hash;

// passed_names.h is made from pass-list.txt by the build (CMakeLists.txt).
constexpr uint64_t kPassedNames[] = {
#define CISTERN_PASSED(symbol) name_hash(#symbol),
#define CISTERN_TAKEN_FOR_UNKNOWN(symbol)
#include "passed_names.h"
#undef CISTERN_PASSED
#undef CISTERN_TAKEN_FOR_UNKNOWN
};

constexpr uint64_t kHookedNames[] = {
#define CISTERN_HOOK(symbol, parameters, arguments) name_hash(#symbol),
#include "shim/hooks.def"
#undef CISTERN_HOOK
};

constexpr uint64_t kTakenForUnknown[] = {
#define CISTERN_PASSED(symbol)
#define CISTERN_TAKEN_FOR_UNKNOWN(symbol) name_hash(#symbol),
#include "passed_names.h"
#undef CISTERN_PASSED
#undef CISTERN_TAKEN_FOR_UNKNOWN
};

template <size_t n>
using Names = std::array<uint64_t, n>;

template <typename... Tables>
constexpr auto sorted(const Tables&... tables) {
  Names<(std::extent_v<Tables> + ...)> names{};
  auto* end = names.begin();
  ((end = std::copy(std::begin(tables), std::end(tables), end)), ...);
  std::sort(names.begin(), names.end());
  return names;
}

constexpr auto kPasses = sorted(kPassedNames);
constexpr auto kAll = sorted(kPassedNames, kHookedNames, kTakenForUnknown);
static_assert(std::adjacent_find(kAll.begin(), kAll.end()) == kAll.end(),
              "a name stands in two tables, or two names have one number");

// In the section of config/known.h, for `cistern doctor`.
[[gnu::used, gnu::section(".cistern.known")]] const auto kKnownNames =
    sorted(kPassedNames, kHookedNames);

template <size_t n>
bool has(const Names<n>& names, const char* name) {
  return std::binary_search(names.begin(), names.end(), name_hash(name));
}

}  // namespace

HookTable hooks() { return {table, std::size(table)}; }

const Hook* find_hook(const char* symbol) {
  const auto* row = std::lower_bound(
      kByName.begin(), kByName.end(), symbol,
      [](uint16_t i, const char* name) { return strcmp(table[i].symbol, name) < 0; });
  if (row == kByName.end() || strcmp(table[*row].symbol, symbol) != 0) return nullptr;
  return &table[*row];
}

bool passes(const char* name) { return has(kPasses, name); }

bool is_known(const char* name) { return has(kKnownNames, name); }

size_t passing_names() { return kPasses.size(); }

}  // namespace cistern::shim
