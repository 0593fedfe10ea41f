// SPDX-License-Identifier: Apache-2.0
// Will a preload into this program work? The loader ignores an object that it cannot use, with at
// most a message, and ignores all preloads for set-id programs. The program would silently run
// without Cistern. So these checks come before exec.
#pragma once

#include <string>
#include <vector>

#include "config/tool/elf.h"

namespace cistern::config::tool {

// What is in the way: an exit code and a line without its "cistern: error: ". Code 0: nothing.
struct Problem {
  int code = 0;
  std::string text;
};

struct Program {
  std::string path;    // what was found for the name that was typed
  std::string binary;  // what the kernel will load: the interpreter, if `path` is a script
  Elf elf;             // of `binary`
};

// The file that execvp would run for the name.
Problem find_program(const std::string& name, std::string& path);

// The object to preload: there, readable, a library, and with a path that LD_PRELOAD can hold.
Problem check_object(const std::string& path, Elf& elf);

// Whether the program, or library, is for the machine that the object is for.
Problem check_architecture(const Program& program, const Elf& object);

// The runtime of a sanitizer that the program is linked with, which has to be loaded before all
// else; empty if there is none.
std::string sanitizer_of(const Elf& elf);

// Whether the loader will run libraries for audit with the program (LD_AUDIT, DT_AUDIT). It sets
// thread-local storage aside before it knows the preloaded objects then.
bool is_audited(const Elf& elf);

// The program, found as execvp finds it, looking through #! lines; and whether `object` reaches it,
// unless that is nullptr.
Problem check_program(const std::string& name, const Elf* object, Program& out);

// Doctor's report on a program, or on a library that programs load: its routes to the driver,
// whether they are covered, whose malloc serves it, and which frameworks pool its memory.
struct Reach {
  bool works = false;        // false: something is in the way, and is said
  bool without_cuda = true;  // no route to the driver is seen
  bool serves_malloc = false;
  std::string but{};  // what holds in spite of that, for the verdict
};

// `object` is what would be preloaded, from `object_path`.
Reach say_program(const char* name, const Elf& object, const std::string& object_path);

}  // namespace cistern::config::tool
