// SPDX-License-Identifier: Apache-2.0
// The settings of this process: read once, by the object's constructor or by a hook that another
// library's constructor calls before it, and constant from then on. Any thread.
#pragma once

#include <span>

#include "config/load.h"
#include "config/policy.h"

namespace cistern::shim {

// False: every call goes through to the driver untouched (CISTERN_POOL=off, a bad setting, a child
// forked after cuInit, a driver too old to pool on, a process with more rights than its user).
bool active();

// Whether pools are wanted or off. Two things let no part work: settings that are bad, and more
// rights than the user's who started the process (AT_SECURE): there no setting is read. Stays as it
// was at load.
bool settings_hold();

const config::Policy& policy();
// The effective policy on one line.
const char* policy_line();

// Static memory as the user asked for it: by which of its two names, and with which value.
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

// Reads the settings from `envp`, unless that has been done or they are another user's (AT_SECURE),
// and calls Part::at_load of every part if they are valid. With CISTERN_ON_ERROR=abort a
// bad setting ends the process here, with status 78.
void load_settings(const char* const* envp);
// The result of reading them: messages, and whether the settings are valid.
const config::Loaded& loaded_settings();

// From now on active() is false.
void become_inactive();

// Messages that one process prints for all its descendants: a bad setting, or an empty report. One
// line is enough for a shell or make and all processes below it.
//
// Nothing is left behind for the children to find: no variable, descriptor or file, which a program
// could see or a killed process leave. Instead a process looks at those above it, as they are now
// in /proc: whether this object is mapped in them, and what their own environment says. If /proc
// does not show it, the line is printed again.
//
// For the object's constructor, which runs before the process can be anybody's parent: a forked
// child is not asked about again. Calls no malloc.

// Whether a process above this one has the same fault in its settings, and says so: `line` is what
// this process would say. libcistern.so says it where malloc is first used, which every program
// does that starts others; the object for the device alone where CUDA begins, for which the driver
// is loaded.
bool said_by_an_ancestor(const char* line);

// Whether a process above this one was asked for a report, too.
bool an_ancestor_reports();

// The functions of the object's parts at load, in a forked child and at exit. Between the folders
// of shim/ includes go one way only, and the other folders lie above process/. So it calls them
// through this table, which the topmost folder fills in (hooks/parts.cc).

// A null member means: nothing to do.
struct Part {
  // The settings were read and hold: before main, and before any other function of the part. Makes
  // no CUDA call.
  void (*at_load)(const config::Policy& policy) = nullptr;
  // The same by the object's constructor, which may come after other functions of the part: a call
  // of another library's constructor. May allocate, which at_load may not.
  void (*at_start)(const config::Policy& policy) = nullptr;
  // Instead of at_start, where the settings are bad and the part does nothing: it may have to tell
  // so (life.h), once the process comes to use it.
  void (*at_bad_start)() = nullptr;
  // With the program's first cuInit. May allocate and start threads.
  void (*at_cuda_start)(const config::Policy& policy) = nullptr;
  // In a child forked after cuInit, whose only thread is the caller. Locks may be held by threads
  // that do not exist here; the driver does not work.
  void (*in_child)() = nullptr;
  // The process ends in an orderly way, and the driver still answers: see end_before_the_driver()
  // in life.h.
  void (*before_driver_ends)() = nullptr;
  // The process ends in an orderly way and used CUDA; the driver has ended. Makes no CUDA call.
  void (*at_exit)() = nullptr;
  // The same of one that did not use CUDA, or was forked from one that did.
  void (*at_exit_without_cuda)() = nullptr;
  // All of these also with CISTERN_POOL=off: the part needs no pools.
  bool without_pools = false;
};

// In the order in which they are called.
std::span<const Part> parts();

}  // namespace cistern::shim
