// SPDX-License-Identifier: Apache-2.0
// Will a preload into this program work? The loader ignores an object that it cannot use, with at
// most a message, and ignores all preloads for set-id programs. The program would silently run
// without Cistern. So these checks come before exec.
#pragma once

#include <string>
#include <vector>

#include "config/tool/elf.h"

namespace cistern::config::tool {

// Why the preload would not work: an exit code, and the error line without "cistern: error: ".
// Code 0: it would work.
struct Problem {
  int code = 0;
  std::string text;
};

struct Program {
  std::string path;    // the file found for the name that the user typed
  std::string binary;  // what the kernel will load: the interpreter, if `path` is a script
  Elf elf;             // of `binary`
};

// The file that execvp would run for the name.
Problem find_program(const std::string& name, std::string& path);

// Checks that the object to preload exists, is readable and is a library, and that LD_PRELOAD can
// hold its path.
Problem check_object(const std::string& path, Elf& elf);

// Checks that the program (or library) and the object are for the same machine.
Problem check_architecture(const Program& program, const Elf& object);

// The sanitizer's runtime that the program is linked with; empty if there is none. Such a runtime
// must be loaded before all other objects.
std::string sanitizer_of(const Elf& elf);

// Whether the loader will run audit libraries with the program (LD_AUDIT, DT_AUDIT). If it does, it
// reserves thread-local storage before it knows the preloaded objects.
bool is_audited(const Elf& elf);

// Finds the program as execvp does, and its interpreter if it is a script. Unless `object` is
// nullptr, also checks that the object will be loaded into it.
Problem check_program(const std::string& name, const Elf* object, Program& out);

// Doctor's report on a program, or on a library that programs load: its routes to the driver,
// whether they are covered, whose malloc serves it, and which frameworks pool its memory.
struct Reach {
  bool works = false;        // false: the preload would not work, and a line said why
  bool without_cuda = true;  // no route to the driver is seen
  bool serves_malloc = false;
  std::string but{};  // a restriction to add to the verdict
};

// `object` is what would be preloaded, from `object_path`.
Reach say_program(const char* name, const Elf& object, const std::string& object_path);

}  // namespace cistern::config::tool
