// SPDX-License-Identifier: Apache-2.0
// The settings of this process, and its life: load, the first successful cuInit, fork, exit. The
// settings are read once, by the object's constructor or by a hook that another library's
// constructor calls before it, and constant from then on. The first cuInit writes the log lines for
// the user. A child forked after it passes every call to the driver. At an orderly exit each part
// (Part) is called twice: while the driver still answers, and after it has ended. Cistern makes no
// CUDA call at load, and none after the driver has ended. Any thread.
#pragma once

#include <span>

#include "config/load.h"
#include "config/policy.h"

namespace cistern::shim {

// False: every call goes through to the driver untouched (CISTERN_POOL=off, a bad setting, a child
// forked after cuInit, a driver too old to pool on, a process with more rights than its user).
bool active();

// Whether the settings are valid, also if they switch pools off. False with a bad setting. False
// also if the process has more rights than the user who started it (AT_SECURE): then no setting is
// read. Does not change after load.
bool settings_hold();

const config::Policy& policy();
// The effective policy on one line.
const char* policy_line();

// The setting by which the user chose the static memory mode, and its value.
struct StaticModeSeen {
  const char* name;
  int value;
};
inline StaticModeSeen static_mode_seen() {
  const config::StaticMode mode = policy().ge_use_static_memory;
  if (mode != config::StaticMode::kDynamic) return {"GE_USE_STATIC_MEMORY", static_cast<int>(mode)};
  const config::StaticMode other = policy().static_memory_policy;
  return {"CISTERN_STATIC_MEMORY_POLICY", static_cast<int>(other)};
}

// Reads the settings from `envp`, and calls Part::at_load of every part if they are valid. Reads
// nothing if that was done before, or in a process with more rights than its user (AT_SECURE). With
// CISTERN_ON_ERROR=abort a bad setting ends the process here, with status 78.
void load_settings(const char* const* envp);
// The result of reading them: messages, and whether the settings are valid.
const config::Loaded& loaded_settings();

// From now on active() is false.
void become_inactive();

// --- Messages that one process prints for all its descendants: a bad setting, or an empty report.
// One line is enough for a shell or make and all processes below it.
//
// A process leaves no variable, descriptor or file for its children: the program could see it, and
// a killed process would leave it behind. Instead a process looks at its ancestors in /proc:
// whether this object is mapped in them, and what their environment says. If /proc does not show
// that, the line is printed again.
//
// To be called by the object's constructor: it runs before the process can fork, so forked children
// do not ask again. Calls no malloc.

// Whether an ancestor prints `line`, the line that this process would print, because its settings
// have the same error. libcistern.so prints it at the first malloc, so every ancestor has printed
// it. libcistern-device.so prints it when CUDA starts, so only ancestors with the driver loaded
// have.
bool said_by_an_ancestor(const char* line);

// Whether an ancestor was asked for a report as well.
bool an_ancestor_reports();

// --- The life of the process.

// The functions of the object's parts at load, in a forked child and at exit. process/ is the
// lowest folder and may not include the others. So it calls them through this table, which the
// topmost folder defines (hooks/parts.cc). A null member means that there is nothing to do.
struct Part {
  // The settings were read and hold: before main, and before any other function of the part. Makes
  // no CUDA call.
  void (*at_load)(const config::Policy& policy) = nullptr;
  // The settings are valid, and the object's constructor runs. Other functions of the part may have
  // been called before, by another library's constructor. May allocate, unlike at_load.
  void (*at_start)(const config::Policy& policy) = nullptr;
  // Instead of at_start, if the settings are bad. The part stays inactive; once the process uses
  // it, it may have to say so (tell_bad_settings()).
  void (*at_bad_start)() = nullptr;
  // With the program's first cuInit. May allocate and start threads.
  void (*at_cuda_start)(const config::Policy& policy) = nullptr;
  // In a child forked after cuInit, whose only thread is the caller. Locks may be held by threads
  // that do not exist here; the driver does not work.
  void (*in_child)() = nullptr;
  // The process ends in an orderly way, and the driver still answers: see end_before_the_driver().
  void (*before_driver_ends)() = nullptr;
  // The process ends in an orderly way and used CUDA; the driver has ended. Makes no CUDA call.
  void (*at_exit)() = nullptr;
  // The same for a process that did not use CUDA, or was forked from one that did.
  void (*at_exit_without_cuda)() = nullptr;
  // Call these functions with CISTERN_POOL=off, too: the part needs no pools.
  bool without_pools = false;
};

// In the order in which they are called.
std::span<const Part> parts();

// To be called after each cuInit that succeeded; any thread. The first call logs the messages of
// the settings and registers the fork handlers. It switches pooling off if the driver is not
// `complete`, i.e. lacks functions that the pools need.
void cuda_started(bool complete);

// Has Part::before_driver_ends called at exit, while the driver still answers. The first call
// registers an exit handler for that. Exit handlers run in the reverse order of their registration,
// so the call must come after the driver has registered its own: once CUDA is in use. Any thread.
void end_before_the_driver();

// Logs what is wrong with the settings: one line, once a process. To be called when the process
// first uses something that settings are about. Any thread, also inside malloc.
void tell_bad_settings();

// --- Fork handlers that stay until the process is over. Handlers of pthread_atfork() belong to the
// object that registers them, and exit() removes them as if the object were unloaded. If another
// thread is between two handlers at that moment, glibc aborts the process. Cistern's object is
// never unloaded (-z nodelete), so its handlers may belong to no object.

// The function behind pthread_atfork() (LSB Core, __register_atfork); returns the same errors.
// `object`: the handlers are removed when it is unloaded; nullptr: never. In libcistern.so this is
// Cistern's own (host/jemalloc.cc), else the C library's. Any thread.
int register_fork_handlers(void (*prepare)(), void (*parent)(), void (*child)(),
                           void* object) noexcept asm("__register_atfork");

inline int at_fork(void (*prepare)(), void (*parent)(), void (*child)()) {
  return register_fork_handlers(prepare, parent, child, nullptr);
}

}  // namespace cistern::shim
