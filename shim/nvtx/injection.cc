// SPDX-License-Identifier: Apache-2.0
// How NVTX comes to report here. NVTX is headers only: each library that uses it has an instance,
// which at its first call loads the tool that NVTX_INJECTION64_PATH names, looks
// InitializeInjectionNvtx2 up in it and calls that, to have its tables of functions filled in.
//
// Where the variable names no tool, it names this object. Where it names one, it stays as it is, so
// that children without Cistern find it: the look-up in that tool is answered by a function that
// calls the tool's own, and then puts ours before what that has filled in. A tool that refuses
// leaves the tables to us.
//
// What the first instance got is what every instance gets. One to which its tool gave other
// functions is left to the tool alone.
#include <dlfcn.h>

#include <atomic>
#include <climits>
#include <cstdlib>

#include "allocator/base/mutex.h"
#include "shim/entry/loader.h"
#include "shim/entry/routes.h"
#include "shim/nvtx/callbacks.h"
#include "shim/nvtx/ranges.h"
#include "shim/process/life.h"
#include "shim/process/log.h"
#include "shim/process/names.h"

// NOLINTNEXTLINE(readability-identifier-naming): NVTX looks it up by this name
extern "C" [[gnu::visibility("default")]] int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t table);

namespace cistern::shim {
namespace {

constexpr char kVariable[] = "NVTX_INJECTION64_PATH";

using Initialise = NvtxInitializeInjectionNvtxFunc_t;

constinit std::atomic<bool> switched_on{false};
constinit std::atomic<Initialise> named_tool{nullptr};

// The tables of one instance, as far as they are ours to fill in.
struct Slots {
  Callback callback[kCallbacks];
  NvtxFunctionPointer* slot[kCallbacks];  // null: this NVTX has no such function
  NvtxFunctionPointer before[kCallbacks];

  bool find(const NvtxExportTableCallbacks* tables) {
    if (tables == nullptr || tables->struct_size < sizeof *tables) return false;
    list_callbacks(callback);
    for (unsigned i = 0; i < kCallbacks; ++i) {
      NvtxFunctionTable table = nullptr;
      unsigned size = 0;
      const bool has = tables->GetModuleFunctionTable(callback[i].module, &table, &size) != 0 &&
                       callback[i].id < size;
      slot[i] = has ? table[callback[i].id] : nullptr;
      before[i] = slot[i] == nullptr ? nullptr : *slot[i];
    }
    return true;
  }

  NvtxFunctionPointer filled_in(unsigned i) const {
    return slot[i] == nullptr || *slot[i] == before[i] ? nullptr : *slot[i];
  }
};

enum class Attached { no, alone, before_tool };

struct First {
  alloc::Mutex mutex;
  Attached how = Attached::no;
  NvtxFunctionPointer tools[kCallbacks]{};
};
constinit First first{};

// False: the first instance was another case.
bool attach(const Slots& slots, Attached how) {
  const alloc::LockGuard guard(first.mutex);
  if (first.how == Attached::no) {
    first.how = how;
    for (unsigned i = 0; i < kCallbacks; ++i) first.tools[i] = slots.filled_in(i);
    put_before(how == Attached::alone ? nullptr : first.tools);
  }
  if (first.how != how) return false;
  for (unsigned i = 0; i < kCallbacks; ++i) {
    if (slots.slot[i] != nullptr && slots.filled_in(i) != first.tools[i]) return false;
  }
  for (unsigned i = 0; i < kCallbacks; ++i) {
    if (slots.slot[i] != nullptr) *slots.slot[i] = slots.callback[i].ours;
  }
  return true;
}

int initialise(NvtxGetExportTableFunc_t table, Initialise tool) {
  Slots slots;
  const bool found =
      slots.find(static_cast<const NvtxExportTableCallbacks*>(table(NVTX_ETID_CALLBACKS)));
  const bool tool_works = tool != nullptr && tool(table) != 0;
  const bool attached =
      found && attach(slots, tool_works ? Attached::before_tool : Attached::alone);
  if (attached && !tool_works) {
    const auto* version =
        static_cast<const NvtxExportTableVersionInfo*>(table(NVTX_ETID_VERSIONINFO));
    if (version != nullptr && version->struct_size >= sizeof *version) {
      version->SetInjectionNvtxVersion(NVTX_VERSION);
    }
  }
  log(config::LogLevel::kDebug, "NVTX: %s%s", attached ? "ranges are seen" : "ranges are not seen",
      tool_works ? ", and by the tool named before" : "");
  return attached || tool_works ? 1 : 0;
}

int initialise_before_tool(NvtxGetExportTableFunc_t table) {
  return initialise(table, named_tool.load(std::memory_order_acquire));
}

// Ours is found where the variable names this object. A second tool keeps its own.
void* in_front_of(void* found) {
  const auto tool = reinterpret_cast<Initialise>(found);
  Initialise expected = nullptr;
  if (tool == InitializeInjectionNvtx2) return found;
  if (!named_tool.compare_exchange_strong(expected, tool) && expected != tool) return found;
  return reinterpret_cast<void*>(initialise_before_tool);
}

constexpr StandIn kInjection = {"InitializeInjectionNvtx2", in_front_of};

// Not where NVTX has loaded this object into a process that runs without Cistern, as a child that
// inherited the variable may: then the C library came before it.
bool preloaded() { return definition_after_us("dlsym") != nullptr; }

// An absolute name: the program may change its directory before it uses NVTX.
void name_this_object() {
  char path[PATH_MAX];
  const link_map* self = object_of(reinterpret_cast<const void*>(&name_this_object));
  if (self == nullptr || realpath(self->l_name, path) == nullptr) return;
  setenv(kVariable, path, 0);
}

void child_after_fork() {
  first.mutex.reset();
  names().reset_after_fork();
  reset_callbacks_after_fork();
  reset_ranges_after_fork();
}

}  // namespace

bool ranges_on() { return switched_on.load(std::memory_order_acquire); }

// A child may be forked before the first CUDA call, and go on to use NVTX: this is not Part's
// in_child.
void switch_ranges_on() {
  if (!preloaded() || switched_on.exchange(true)) return;
  at_fork(nullptr, nullptr, child_after_fork);
  stand_in_for(kInjection);
  name_this_object();
}

}  // namespace cistern::shim

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table) {
  using namespace cistern::shim;
  return ranges_on() ? initialise(table, nullptr) : 0;
}
