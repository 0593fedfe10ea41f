// SPDX-License-Identifier: Apache-2.0
// Call sites: from where in the program a call came, as one number for each distinct call stack.
// Off until a setting needs it. Any thread; no lock of Cistern's may be held, unless it says
// otherwise.
//
// The frames of a site begin with the caller of the hook; Cistern's own are left out. Where the
// thread runs Python, its Python frames stand as one block before the first native frame of the
// interpreter, which ran them: what called CUDA for them comes before, what started them after.
//
// *The unwinder* (unwinder.cc) finds the return addresses on the calling thread's stack, by
// libunwind. That is loaded for Cistern alone (RTLD_LOCAL): were it the program's, the program's
// C++ exceptions would go through it. It takes locks of its own, maps memory, may call malloc once,
// and opens a pipe by which it tests addresses before it reads them. So it is not called from
// inside malloc.
//
// *Python frames* (frames.cc) are read from the interpreter's own records. Most callers of CUDA
// have given back the interpreter's lock (GIL), and without it no function that takes references
// may be called. A thread's own frames do not change while it is here. CPython 3.11 to 3.13 are
// supported.
//
// *Names* are for people and for matching. Finding one reads files of symbols, and may ask the
// program's C++ runtime to demangle, which calls malloc. So names are found for reports, for the
// line that says memory is out, and once a site if a setting has globs; never in an ordinary
// allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/record/event.h"

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

struct PythonCall {
  const void* code;         // the code object
  const void* instruction;  // the last one that was executed
  uint64_t identity() const;
};

// Innermost first, at most `most`; 0 without Python. `changes` is LoadedFiles::changes(): Python is
// looked for again when something was loaded.
int python_calls(PythonCall* out, int most, uint64_t changes);

// The frame of a call, valid at this moment; takes no reference.
alloc::Frame frame_of(const PythonCall& call);

// An address in the file that has the interpreter; 0 without Python.
uint64_t address_in_python();

// The symbol that holds a native frame, as the file has it ("_Z3addii"); "" where none does.
struct Symbol {
  char name[512];
  uint64_t offset;  // of the frame in it
};
void find_symbol(const alloc::Frame& frame, Symbol* out);

// The same, and as people write it: "add(int, int)", or the symbol where there is nothing to
// demangle or nobody who can.
struct FunctionName {
  Symbol symbol;
  char readable[1024];
};
void find_function(const alloc::Frame& frame, FunctionName* out);

// "function (file:line)" of a Python frame; "symbol+0x12 (libfoo.so)" of a native one, and "0x12
// (libfoo.so)" where the symbol is not known; "0x7f12" where no file has the code. Cut off to
// `size`; the length.
int describe_frame(const alloc::Frame& frame, char* out, size_t size);

void reset_descriptions_after_fork();

// From now on capture_site() looks. Makes no CUDA call.
void switch_sites_on();
bool sites_on();

// By the object's constructor: the loader's lock, which this takes, may later be held by a thread
// that waits for one that allocates.
void load_unwinder();

// The site of the calling thread, from 1 on; 0 where it is not known: sites are off, no unwinder
// can be had, the call came out of the unwinder itself, or there is no room for another site. No
// lock of Cistern's may be held.
uint32_t capture_site();

// The sites known so far are 1 to site_count(), and all of them have their frames. What was told of
// a site does not change.
uint32_t site_count();

// The frames of a site, innermost first; how many were written to `out`, which has room for
// alloc::kMostFrames.
int site_frames(uint32_t site, alloc::Frame* out);

// In a forked child, whose only thread is the caller: locks may be held by threads that do not
// exist there.
void reset_sites_after_fork();

}  // namespace cistern::shim
