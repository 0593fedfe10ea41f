// SPDX-License-Identifier: Apache-2.0
// Call sites: one number for each distinct call stack that led to a hook. Off until a setting needs
// it. Any thread; the caller may hold no lock of Cistern's.
//
// The frames of a site begin with the caller of the hook; Cistern's own are left out. If the thread
// runs Python, all its Python frames stand together, just before the first native frame of the
// interpreter. Native frames that Python called come before them, those that called Python after.
//
// *The unwinder* finds the return addresses on the calling thread's stack, by
// libunwind. That is loaded RTLD_LOCAL: otherwise it would handle the program's C++ exceptions. It
// takes locks of its own, maps memory, may call malloc once, and opens a pipe by which it tests
// addresses before it reads them. So it is not called from inside malloc.
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

// Why libunwind could not be loaded, for people; nullptr if it was, or if nobody tried yet.
const char* why_no_unwinder();

struct PythonCall {
  const void* code;         // the code object
  const void* instruction;  // the last one that was executed
  uint64_t identity() const;
};

// Writes the thread's Python calls, innermost first, at most `most`. Returns their number; 0
// without Python. `changes`: how many files the process has loaded and unloaded so far. If that has
// changed, Python is looked for again.
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

// The same, and the demangled name: "add(int, int)". `readable` is the symbol itself if that is not
// mangled, or if no C++ runtime can demangle it.
struct FunctionName {
  Symbol symbol;
  char readable[1024];
};
void find_function(const alloc::Frame& frame, FunctionName* out);

// "function (file:line)" of a Python frame; "symbol+0x12 (libfoo.so)" of a native one, and "0x12
// (libfoo.so)" if the symbol is not known; "0x7f12" if the code is in no file. Cut off to `size`.
// Returns the length.
int describe_frame(const alloc::Frame& frame, char* out, size_t size);

void reset_descriptions_after_fork();

// From now on capture_site() captures sites. Makes no CUDA call.
void switch_sites_on();
bool sites_on();

// To be called by the object's constructor. It takes the loader's lock. Later another thread might
// hold that lock while it waits for a thread that allocates, so loading then could deadlock.
void load_unwinder();

// The site of the calling thread, from 1 on; 0 where it is not known: sites are off, no unwinder
// can be had, the call came out of the unwinder itself, or there is no room for another site. No
// lock of Cistern's may be held.
uint32_t capture_site();

// The sites known so far are 1 to site_count(); all of them have their frames, which never change.
uint32_t site_count();

// The frames of a site, innermost first; how many were written to `out`, which has room for
// alloc::kMostFrames.
int site_frames(uint32_t site, alloc::Frame* out);

// In a forked child, whose only thread is the caller: locks may be held by threads that do not
// exist there.
void reset_sites_after_fork();

}  // namespace cistern::shim
