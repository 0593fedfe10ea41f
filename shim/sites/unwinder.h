// SPDX-License-Identifier: Apache-2.0
// The return addresses on the calling thread's stack, by libunwind. That is loaded for Cistern
// alone (RTLD_LOCAL): were it the program's, the program's C++ exceptions would go through it. It
// takes locks of its own, maps memory, may call malloc once, and opens a pipe by which it tests
// addresses before it reads them. Any thread, but not from inside malloc; no lock of Cistern's may
// be held.
#pragma once

#include <cstdint>

namespace cistern::shim {

// How many files the process has loaded and unloaded so far. What an address means changes with
// them, and with nothing else that Cistern looks at.
struct LoadedFiles {
  uint64_t loads, unloads;
  uint64_t changes() const { return loads + unloads; }
};
LoadedFiles loaded_files();

// Loads libunwind, unless that was done.
void load_unwinder_once();

// The return addresses, innermost first, the caller's own among them; at most `most`. 0: libunwind
// cannot be had, or another thread takes long to load it.
int return_addresses(void** out, int most);

// Whether return_addresses() may follow what it remembers of a library that is no longer there.
// What it then reads was tested first, so that its answer is wrong but does no harm.
bool may_be_outdated(const LoadedFiles& loaded);

// The same as return_addresses(), which has been called, from what is loaded now; a microsecond a
// frame. `loaded` is loaded_files().
int exact_return_addresses(void** out, int most, const LoadedFiles& loaded);

// For people, why libunwind cannot be had; nullptr: it can, or it was not asked for yet.
const char* why_no_unwinder();

// Loading it may have been another thread's work.
void reset_unwinder_after_fork();

}  // namespace cistern::shim
