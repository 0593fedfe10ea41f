// SPDX-License-Identifier: Apache-2.0
// The table of hooks, and the calls by which a program starts CUDA and finds its functions.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "shim/entry/hooks.h"
#include "shim/entry/routes.h"
#include "shim/hooks/ask.h"

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

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuInit(unsigned int Flags) {
  const CUresult result = ask(driver().cuInit, Flags);
  if (result == CUDA_SUCCESS) cuda_started();
  return result;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  const CUresult result = ask(driver().cuGetProcAddress, symbol, pfn, cudaVersion, flags);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    reroute(symbol, cudaVersion, flags, pfn);
  }
  return result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  const CUresult result =
      ask(driver().cuGetProcAddress_v2, symbol, pfn, cudaVersion, flags, symbolStatus);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    reroute(symbol, cudaVersion, flags, pfn);
  }
  return result;
}
