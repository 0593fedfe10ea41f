// SPDX-License-Identifier: Apache-2.0
#include "shim/entry/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "allocator/base/os.h"
#include "config/known.h"
#include "shim/entry/loader.h"

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

// --- the real driver ---

namespace {

constexpr SymbolName kSymbols[] = {
#define CISTERN_HOOK(symbol, parameters, arguments) #symbol,
#include "shim/hooks.def"
#undef CISTERN_HOOK
};
constexpr size_t kHooks = std::size(kSymbols);

// A function of the driver or of another tool that belongs to the hook in this row of the table.
struct HookedFunction {
  const void* real;
  uint32_t row;

  friend bool operator<(const HookedFunction& a, const HookedFunction& b) {
    return a.real != b.real ? a.real < b.real : a.row < b.row;
  }
};

// At least as many as a driver has functions that pass without a hook.
constexpr size_t kMostPassing = 1024;

struct Found {
  Driver driver;
  link_map* library;
  // Sorted: the driver's own, and those of tools that hooks call.
  HookedFunction hooked[2 * kHooks];
  size_t hooked_count;
  const void* passing[kMostPassing];  // the driver's functions that need no hook, sorted
  size_t passing_count;
  size_t unknown_count;  // functions of the driver whose names Cistern does not know
};

// Threads that look everything up at the same time fill one candidate each, so that none waits for
// another that may be inside the loader. All use the candidate that is finished first. Only a
// thread beyond kCandidates waits for it.
constexpr int kCandidates = 8;
constinit Found candidates[kCandidates] = {};
constinit std::atomic<int> candidates_taken{0};
constinit std::atomic<const Found*> found{nullptr};
constinit std::atomic<link_map*> noted{nullptr};  // the driver that note_driver() saw first

// A libcuda.so that only passes calls on, as on WSL2, has another library behind it; its
// cuGetProcAddress returns addresses in that library. Filled in by the thread that first sees such
// an address.
struct Behind {
  link_map* library;
  HookedFunction hooked[kHooks];  // sorted
  size_t hooked_count;
};
constinit Behind behind_candidates[kCandidates] = {};
constinit std::atomic<int> behind_taken{0};
constinit std::atomic<const Behind*> behind{nullptr};

bool is_driver(const link_map* object) {
  return object != nullptr && strncmp(base_name(object), "libcuda.so", 10) == 0;
}

link_map* find_library() {
  link_map* library = noted.load(std::memory_order_acquire);
  if (library == nullptr) {
    void* version = definition_after_us("cuDriverGetVersion");
    library = version == nullptr ? nullptr : object_of(version);
    if (!is_driver(library)) library = nullptr;
  }
  // This handle is never closed, so that the library stays loaded when the program closes its own.
  void* handle = dlopen(library != nullptr ? library->l_name : "libcuda.so.1",
                        RTLD_NOW | (library != nullptr ? RTLD_NOLOAD : 0));
  return handle != nullptr ? static_cast<link_map*>(handle) : library;
}

// The function that the hook of `symbol` calls. `own`: the driver's definition. `next`: the first
// definition after Cistern. It may belong to another tool, preloaded after Cistern but found before
// the driver.
void* next_definition(void* own, void* next, const char* symbol) {
  if (next == nullptr || next == own) return own;
  // The program's calls can only reach a definition that RTLD_NEXT finds as well. Any other belongs
  // to a library that was loaded privately.
  void* visible = real_dlsym(RTLD_NEXT, symbol);
  if (visible == nullptr) return own;
  // If a tool's dlsym returns the tool's own import of the symbol, that import is the hook, because
  // the hook comes first. The tool means its own definition, if it has one.
  if (object_of(visible) != object_of(reinterpret_cast<const void*>(&next_definition))) {
    return visible;
  }
  const void* tools_dlsym = definition_after_us("dlsym");
  return object_of(next) == object_of(tools_dlsym) ? next : own;
}

// Notes the functions of the driver that have no hook.
void see_exports(Found& out) {
  const auto see = [](void* data, const char* name, void* address) {
    Found& into = *static_cast<Found*>(data);
    if (!config::is_driver_name(name)) return;
    if (passes(name) && into.passing_count < kMostPassing) {
      into.passing[into.passing_count++] = address;
    }
    if (!is_known(name)) ++into.unknown_count;
  };
  for_each_definition(out.library, {see, &out});
  std::sort(out.passing, out.passing + out.passing_count);
}

void fill(Found& out) {
  out.library = find_library();
  void* own[kHooks] = {};
  void* next[kHooks] = {};
  if (out.library != nullptr) {
    definitions_in(out.library, kSymbols, own);
    see_exports(out);
  }
  definitions_after_us(kSymbols, next);
  const auto know = [&](const void* real, size_t row) {
    if (real != nullptr) out.hooked[out.hooked_count++] = {real, static_cast<uint32_t>(row)};
  };
  for (size_t i = 0; i < kHooks; ++i) {
    next[i] = next_definition(own[i], next[i], kSymbols[i].text);
    know(own[i], i);
    if (next[i] != own[i]) know(next[i], i);
  }
  std::sort(out.hooked, out.hooked + out.hooked_count);

  bool complete = out.library != nullptr;
  size_t i = 0;
#define CISTERN_HOOK(symbol, parameters, arguments) \
  out.driver.symbol = reinterpret_cast<decltype(out.driver.symbol)>(next[i++]);
#include "shim/hooks.def"
#undef CISTERN_HOOK
#define CISTERN_CALL(symbol, parameters, required)                                       \
  void* symbol = out.library == nullptr ? nullptr : definition_in(out.library, #symbol); \
  out.driver.symbol = reinterpret_cast<decltype(out.driver.symbol)>(symbol);             \
  if ((required) && out.driver.symbol == nullptr) complete = false;
#include "shim/entry/driver_calls.def"
#undef CISTERN_CALL
  out.driver.complete = complete && out.driver.cuDeviceTotalMem_v2 != nullptr &&
                        out.driver.cuCtxPushCurrent_v2 != nullptr &&
                        out.driver.cuEventCreate != nullptr && out.driver.cuEventQuery != nullptr &&
                        out.driver.cuStreamQuery != nullptr &&
                        out.driver.cuMemAlloc_v2 != nullptr && out.driver.cuMemFree_v2 != nullptr;
}

// Not inlined: its frame of several KiB would be part of each hook's, and a thread may have as
// little stack as PTHREAD_STACK_MIN.
[[gnu::noinline]] const Found& first_lookup() {
  const int taken = candidates_taken.fetch_add(1, std::memory_order_relaxed);
  if (taken < kCandidates) {
    fill(candidates[taken]);
    const Found* expected = nullptr;
    found.compare_exchange_strong(expected, &candidates[taken], std::memory_order_acq_rel);
  }
  alloc::os::wait_while([] { return found.load(std::memory_order_acquire) == nullptr; });
  return *found.load(std::memory_order_acquire);
}

const Found& lookup() {
  const Found* done = found.load(std::memory_order_acquire);
  if (done != nullptr) [[likely]]
    return *done;
  return first_lookup();
}

// The library behind the driver, if `real` lies in it; else nullptr.
const Behind* find_behind(const Found& f, const void* real) {
  const Behind* done = behind.load(std::memory_order_acquire);
  link_map* library = object_of(real);
  if (!is_driver(library) || library == f.library) return nullptr;
  if (done == nullptr) {
    const int taken = behind_taken.fetch_add(1, std::memory_order_relaxed);
    if (taken >= kCandidates) return nullptr;
    Behind& mine = behind_candidates[taken];
    mine.library = library;
    void* own[kHooks] = {};
    definitions_in(library, kSymbols, own);
    for (uint32_t row = 0; row < kHooks; ++row) {
      if (own[row] != nullptr) mine.hooked[mine.hooked_count++] = {own[row], row};
    }
    std::sort(mine.hooked, mine.hooked + mine.hooked_count);
    if (behind.compare_exchange_strong(done, &mine, std::memory_order_acq_rel)) done = &mine;
  }
  return done->library == library ? done : nullptr;
}

const HookedFunction* find_hooked(const HookedFunction* hooked, size_t count, const void* real) {
  const HookedFunction* it = std::lower_bound(hooked, hooked + count, HookedFunction{real, 0});
  return it == hooked + count || it->real != real ? nullptr : it;
}

}  // namespace

const Driver& driver() { return lookup().driver; }

bool note_driver(void* real) {
  link_map* object = object_of(real);
  link_map* expected = nullptr;
  if (!is_driver(object)) return false;
  noted.compare_exchange_strong(expected, object);
  const Found* done = found.load(std::memory_order_acquire);
  return object == (done != nullptr ? done->library : noted.load(std::memory_order_acquire));
}

bool in_driver(const void* code) {
  const Found* done = found.load(std::memory_order_acquire);
  if (done == nullptr || done->library == nullptr) return false;
  const link_map* object = object_of(code);
  const Behind* second = behind.load(std::memory_order_acquire);
  return object == done->library || (second != nullptr && object == second->library);
}

void* hook_for_address(const void* real, const char** symbol) {
  const Found& f = lookup();
  const HookedFunction* hooked = find_hooked(f.hooked, f.hooked_count, real);
  const Behind* second = hooked == nullptr ? find_behind(f, real) : nullptr;
  if (second != nullptr) hooked = find_hooked(second->hooked, second->hooked_count, real);
  if (hooked == nullptr) return nullptr;
  const Hook& hook = hooks().entries[hooked->row];
  *symbol = hook.symbol;
  return hook.function;
}

bool is_unknown(const void* real) {
  const Found& f = lookup();
  const char* symbol;
  return f.library != nullptr && hook_for_address(real, &symbol) == nullptr &&
         !std::binary_search(f.passing, f.passing + f.passing_count, real) &&
         lies_in(f.library, real);
}

size_t unknown_functions() { return lookup().unknown_count; }

bool driver_defines(const char* name) {
  const link_map* library = lookup().library;
  return library != nullptr && definition_in(library, name) != nullptr;
}

}  // namespace cistern::shim
