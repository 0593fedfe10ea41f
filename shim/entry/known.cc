// SPDX-License-Identifier: Apache-2.0
#include "shim/entry/known.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "config/name_hash.h"

namespace cistern::shim {
namespace {

using config::name_hash;

// passed_names.h is made from pass-list.txt by the build (CMakeLists.txt).
constexpr uint64_t kPassedNames[] = {
#define CISTERN_PASSED(symbol) name_hash(#symbol),
#define CISTERN_TAKEN_FOR_UNKNOWN(symbol)
#include "passed_names.h"
#undef CISTERN_PASSED
#undef CISTERN_TAKEN_FOR_UNKNOWN
};

constexpr uint64_t kOtherNames[] = {
#define CISTERN_PASSED(symbol)
#define CISTERN_TAKEN_FOR_UNKNOWN(symbol) name_hash(#symbol),
#include "passed_names.h"
#undef CISTERN_PASSED
#undef CISTERN_TAKEN_FOR_UNKNOWN
#define CISTERN_HOOK(symbol, parameters, arguments) name_hash(#symbol),
#include "shim/hooks.def"
#undef CISTERN_HOOK
};

template <size_t n>
using Names = std::array<uint64_t, n>;

constexpr auto kPasses = [] {
  Names<std::size(kPassedNames)> names{};
  std::copy(std::begin(kPassedNames), std::end(kPassedNames), names.begin());
  std::sort(names.begin(), names.end());
  return names;
}();

constexpr auto kAll = [] {
  Names<std::size(kPassedNames) + std::size(kOtherNames)> names{};
  auto* end = std::copy(std::begin(kPassedNames), std::end(kPassedNames), names.begin());
  std::copy(std::begin(kOtherNames), std::end(kOtherNames), end);
  std::sort(names.begin(), names.end());
  return names;
}();
static_assert(std::adjacent_find(kAll.begin(), kAll.end()) == kAll.end(),
              "a name stands in two tables, or two names have one number");

// In the section of config/name_hash.h, for `cistern doctor`.
[[gnu::used, gnu::section(".cistern.known")]] const auto kKnownNames = kAll;

template <size_t n>
bool has(const Names<n>& names, const char* name) {
  return std::binary_search(names.begin(), names.end(), name_hash(name));
}

}  // namespace

bool passes(const char* name) { return has(kPasses, name); }

bool is_known(const char* name) { return has(kKnownNames, name); }

size_t passing_names() { return kPasses.size(); }

}  // namespace cistern::shim
