// SPDX-License-Identifier: Apache-2.0
#include "shim/routes.h"

#include <dlfcn.h>

#include "shim/driver.h"
#include "shim/hooks.h"
#include "shim/loader.h"
#include "shim/log.h"
#include "shim/process.h"

namespace cistern::shim {
namespace {

// Read by `cistern doctor` and the tests: every look-up of a driver function and where it went.
void tell_route(const char* route, const char* asked, int version, cuuint64_t flags,
                const char* symbol) {
  if (!log_enabled(config::LogLevel::kDebug)) return;
  log(config::LogLevel::kDebug, "route: %s %s version=%d flags=%llu -> %s (%s)", route,
      asked[0] == '\0' ? "\"\"" : asked, version, static_cast<unsigned long long>(flags),
      symbol != nullptr ? symbol : asked, symbol != nullptr ? "hook" : "driver");
}

// Cheap, since it sees every dlsym of the process.
bool may_be_hook(const char* name) { return name != nullptr && name[0] == 'c' && name[1] == 'u'; }

}  // namespace

void reroute(const char* asked, int version, cuuint64_t flags, void** function) {
  const char* symbol = nullptr;
  if (void* hook = hook_for_address(*function, &symbol)) *function = hook;
  tell_route("cuGetProcAddress", asked, version, flags, symbol);
}

}  // namespace cistern::shim

// Called by the assembly of dlsym and dlvsym. Returns what the program is to get, 1 for a null
// pointer, or 0 when the real function shall answer.
extern "C" [[gnu::visibility("hidden")]] void* cistern_claim(void* handle, const char* name,
                                                             const char* version,
                                                             const void* caller) {
  using namespace cistern::shim;
  find_real_lookups();
  if (!may_be_hook(name)) return nullptr;
  const Hook* hook = find_hook(name);
  // RTLD_NEXT: another tool that forwards wants what comes after it, which may be us or not.
  if (hook == nullptr || handle == RTLD_NEXT || in_driver(caller)) return nullptr;
  // Everywhere: that would find our export even where no driver is loaded.
  void* from = handle == RTLD_DEFAULT ? RTLD_NEXT : handle;
  void* real = version == nullptr ? real_dlsym(from, name) : real_dlvsym(from, name, version);
  if (real == nullptr) return reinterpret_cast<void*>(1);  // dlerror() says why
  if (real == hook->function) return real;
  if (!note_driver(real)) return real;
  tell_route(version == nullptr ? "dlsym" : "dlvsym", name, 0, 0, hook->symbol);
  return hook->function;
}
