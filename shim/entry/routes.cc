// SPDX-License-Identifier: Apache-2.0
#include "shim/entry/routes.h"

#include <dlfcn.h>

#include "shim/entry/driver.h"
#include "shim/entry/hook_table.h"
#include "shim/entry/loader.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

// Logs where the look-up of a driver function led, for `cistern doctor` and the tests.
void tell_route(const char* route, const char* asked, int version, cuuint64_t flags,
                const char* symbol) {
  if (!log_enabled(config::LogLevel::kDebug)) return;
  log(config::LogLevel::kDebug, "route: %s %s version=%d flags=%llu -> %s (%s)", route,
      asked[0] == '\0' ? "\"\"" : asked, version, static_cast<unsigned long long>(flags),
      symbol != nullptr ? symbol : asked, symbol != nullptr ? "hook" : "driver");
}

// Cheap, since it sees every dlsym of the process.
bool may_be_hook(const char* name) { return name != nullptr && name[0] == 'c' && name[1] == 'u'; }

// False leaves dlerror() set, as after a look-up that found nothing.
bool driver_is_loaded(const char* name) {
  if (definition_after_us(name) != nullptr) return true;
  void* handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) return dlclose(handle) == 0;
  real_dlsym(RTLD_NEXT, name);
  return false;
}

}  // namespace

void reroute(const char* asked, int version, cuuint64_t flags, void** function) {
  const char* symbol = nullptr;
  if (void* hook = hook_for_address(*function, &symbol)) *function = hook;
  tell_route("cuGetProcAddress", asked, version, flags, symbol);
}

}  // namespace cistern::shim

// Called by the assembly of dlsym and dlvsym (dlsym_*.S). Returns what the program is to get, 1 for
// a null pointer, or 0 when the real function shall answer.
extern "C" [[gnu::visibility("hidden")]] void* cistern_claim(void* handle, const char* name,
                                                             const char* version,
                                                             const void* caller) {
  using namespace cistern::shim;
  find_real_lookups();
  if (!may_be_hook(name)) return nullptr;
  const Hook* hook = find_hook(name);
  // RTLD_NEXT is asked by another tool that forwards: the real function finds what comes after that
  // tool, be it Cistern's hook or not.
  if (hook == nullptr || handle == RTLD_NEXT || in_driver(caller)) return nullptr;
  void* real = version == nullptr ? real_dlsym(handle, name) : real_dlvsym(handle, name, version);
  if (real == nullptr) return reinterpret_cast<void*>(1);  // dlerror() says why
  // The look-up found the hook itself. It stands for the driver's function, so there has to be a
  // driver.
  if (real == hook->function) return driver_is_loaded(name) ? nullptr : reinterpret_cast<void*>(1);
  // RTLD_DEFAULT found a definition that comes before the hook, as the program's own does: it is
  // the one that the program would call.
  if (handle == RTLD_DEFAULT) return nullptr;
  if (!note_driver(real)) return real;
  tell_route(version == nullptr ? "dlsym" : "dlvsym", name, 0, 0, hook->symbol);
  return hook->function;
}
