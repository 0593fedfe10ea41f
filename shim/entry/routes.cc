// SPDX-License-Identifier: Apache-2.0
#include "shim/entry/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "config/known.h"
#include "shim/entry/loader.h"
#include "shim/entry/unknown.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

// Logs the result of the look-up of a driver function, for `cistern doctor` and the tests.
void tell_route(const char* route, const char* asked, int version, cuuint64_t flags,
                const char* symbol) {
  if (!log_enabled(config::LogLevel::kDebug)) return;
  log(config::LogLevel::kDebug, "route: %s %s version=%d flags=%llu -> %s (%s)", route,
      asked[0] == '\0' ? "\"\"" : asked, version, static_cast<unsigned long long>(flags),
      symbol != nullptr ? symbol : asked, symbol != nullptr ? "hook" : "driver");
}

// Must be cheap: it runs for every dlsym of the process.
bool may_be_hook(const char* name) { return name != nullptr && name[0] == 'c' && name[1] == 'u'; }

// Whether there is a driver that has this function. An older driver may lack it, and then the
// program must not find a hook either. False leaves dlerror() set, as after a failed look-up.
bool driver_has(const char* name) {
  // Ask the loader, with its lock: other threads may be unloading libraries.
  if (real_dlsym(RTLD_NEXT, name) != nullptr) return true;
  void* handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  const bool has =
      handle != nullptr && definition_in(static_cast<link_map*>(handle), name) != nullptr;
  if (handle != nullptr) dlclose(handle);
  if (!has) real_dlsym(RTLD_NEXT, name);
  return has;
}

// What a look-up returns for a driver function that has no hook and is not on the pass list: a
// trampoline if Cistern does not know the function. nullptr: the real look-up answers.
void* claim_unknown(void* handle, const char* name, const char* version, const void* caller) {
  if (!config::is_driver_name(name) || passes(name) || in_driver(caller)) return nullptr;
  void* real = version == nullptr ? real_dlsym(handle, name) : real_dlvsym(handle, name, version);
  if (real == nullptr || !note_driver(real)) return nullptr;
  // This RTLD_NEXT starts from Cistern, not from the caller. The two differ if the caller comes
  // behind Cistern, or if another tool's definition lies between. Then the real look-up answers.
  if (handle == RTLD_NEXT && !is_next_definition_ours(caller, name)) {
    handed_out_bare(real, name);
    return nullptr;
  }
  void* given = guarded(real, name);
  if (given == real) return nullptr;
  tell_route(version == nullptr ? "dlsym" : "dlvsym", name, 0, 0, nullptr);
  return given;
}

constinit std::atomic<const StandIn*> stand_in{nullptr};

// A stand-in replaces a function only in a library that the program opened (driver.h).
void* claim_stand_in(void* handle, const char* name, const char* version) {
  const StandIn* function = stand_in.load(std::memory_order_acquire);
  if (function == nullptr || name == nullptr || strcmp(name, function->name) != 0) return nullptr;
  if (handle == RTLD_DEFAULT || handle == RTLD_NEXT) return nullptr;
  void* real = version == nullptr ? real_dlsym(handle, name) : real_dlvsym(handle, name, version);
  return real == nullptr ? reinterpret_cast<void*>(1) : function->in_front_of(real);
}

constexpr char kTables[] = "cuGetExportTable";
constinit std::atomic<bool> tables_handed_out{false};

bool is_in(const void* caller, const char* library) {
  const link_map* object = object_of(caller);
  return object != nullptr && strncmp(base_name(object), library, strlen(library)) == 0;
}

// NVIDIA's libraries that get the driver's tables by dlsym() and submit no work through them: the
// management library, the run-time compiler, and the runtime before 11.3.
bool is_trusted_with_tables(const void* caller) {
  if (is_in(caller, "libnvidia-ml.so") || is_in(caller, "libnvrtc.so")) return true;
  if (!is_in(caller, "libcudart.so")) return false;
  tables_handed_out.store(true, std::memory_order_release);
  return true;
}

// For functions with which work out of sight begins (unknown.h): those of other libraries, and the
// one that returns the driver's own tables.
void* claim_out_of_sight(void* handle, const char* name, const char* version, const void* caller) {
  if (in_driver(caller)) return nullptr;
  if (strcmp(name, kTables) == 0 && is_trusted_with_tables(caller)) return nullptr;
  if (handle == RTLD_NEXT && !is_next_definition_ours(caller, name)) return nullptr;
  void* real = version == nullptr ? real_dlsym(handle, name) : real_dlvsym(handle, name, version);
  return real == nullptr ? reinterpret_cast<void*>(1) : guarded_out_of_sight(real, name);
}

// Must be cheap: it runs for every other name that is looked up.
void* claim_other(void* handle, const char* name, const char* version, const void* caller) {
  const bool may = name != nullptr && (name[0] == 'N' || name[0] == 'o');
  return may && hands_over_out_of_sight(name) ? claim_out_of_sight(handle, name, version, caller)
                                              : claim_stand_in(handle, name, version);
}

void* claim_without_hook(void* handle, const char* name, const char* version, const void* caller) {
  return hands_over_out_of_sight(name) ? claim_out_of_sight(handle, name, version, caller)
                                       : claim_unknown(handle, name, version, caller);
}

}  // namespace

bool runtime_has_tables() { return tables_handed_out.load(std::memory_order_acquire); }

void stand_in_for(const StandIn& function) { stand_in.store(&function, std::memory_order_release); }

void reroute(const char* asked, int version, cuuint64_t flags, void** function) {
  const char* symbol = nullptr;
  if (strcmp(asked, kTables) == 0) tables_handed_out.store(true, std::memory_order_release);
  void* hook = hook_for_address(*function, &symbol);
  *function = hook != nullptr ? hook : guarded(*function, asked);
  tell_route("cuGetProcAddress", asked, version, flags, symbol);
}

}  // namespace cistern::shim

// Called by the assembly of dlsym and dlvsym (dlsym_*.S). Returns what the program gets, 1 for a
// null pointer, or 0 if the real function must answer.
extern "C" [[gnu::visibility("hidden")]] void* cistern_claim(void* handle, const char* name,
                                                             const char* version,
                                                             const void* caller) {
  using namespace cistern::shim;
  find_real_lookups();
  if (!may_be_hook(name)) return claim_other(handle, name, version, caller);
  const Hook* hook = find_hook(name);
  if (hook == nullptr) return claim_without_hook(handle, name, version, caller);
  if (in_driver(caller)) return nullptr;
  // With RTLD_NEXT, a tool that forwards looks for the next definition, and the real function finds
  // it. If that is the hook, the hook stands for the driver's function, so the driver must have
  // one.
  if (handle == RTLD_NEXT) {
    return is_next_definition_ours(caller, name) && !driver_has(name) ? reinterpret_cast<void*>(1)
                                                                      : nullptr;
  }
  // If a definition comes before the hook, such as the program's own, the program means that one.
  if (handle == RTLD_DEFAULT && !is_first_definition_ours(name)) return nullptr;
  void* real = version == nullptr ? real_dlsym(handle, name) : real_dlvsym(handle, name, version);
  if (real == nullptr) return reinterpret_cast<void*>(1);  // dlerror() says why
  // The look-up found the hook, which stands for the driver's function, so the driver must have
  // one.
  if (real == hook->function) return driver_has(name) ? nullptr : reinterpret_cast<void*>(1);
  if (handle == RTLD_DEFAULT) return nullptr;
  if (!note_driver(real)) return real;
  tell_route(version == nullptr ? "dlsym" : "dlvsym", name, 0, 0, hook->symbol);
  return hook->function;
}
