// SPDX-License-Identifier: Apache-2.0
// cistern-config answers the questions of scripts/cistern before a program starts. It reads
// settings with the same code as the preloaded object, so that both print the same line for the
// same mistake. It is an ordinary program: single-threaded, may use the C++ library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"

namespace cistern::config::tool {

// Exit codes; the last two are env(1)'s.
inline constexpr int kDone = 0;
inline constexpr int kNotHere = 1;  // doctor: it would not work on this machine
inline constexpr int kUsage = 2;    // bad usage, bad setting, or a program that no preload reaches
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

// The settings of this process, loaded once.
const Loaded& settings();

// "NAME" for a row, "CISTERN_GPU_LIMIT_0" for the row per device and device 0.
std::string row_name(const Row& row, unsigned device);

// The row of a setting by its option's name: without prefix, in lower case, with dashes. `option`
// becomes the setting's name. If there is no such setting, returns nullptr and `option` becomes the
// name that it would have with Cistern's prefix.
const Row* row_of_option(std::string& option);

// Writes a complete line to stderr, with unprintable characters replaced (config/text.h).
void complain(std::string_view line);
// Writes "cistern: error: " and `what` to stderr; returns `code`.
int fail(int code, const std::string& what);

// `text` with '?' for each unprintable character (config/text.h).
std::string shown(std::string_view text);

// Prints a line of doctor's report.
void say(const char* what, const std::string& value);

// --- One function per subcommand; `argv` begins with the first argument after it.
int flags(int argc, char** argv);
int doctor(int argc, char** argv);
int start(int argc, char** argv);  // returns only when the program could not be started

// --- elf.cc: what the loader will see in an ELF file. It is not read with readelf, which a machine
// that only runs programs need not have. No offset of the file is trusted: the file may be
// truncated or forged. Time and memory for reading are proportional to its size.

struct Elf {
  bool valid = false;
  int bits = 0;
  uint16_t machine = 0;
  // The members below are set only for files in this machine's byte order.
  bool has_dynamic = false;
  bool cut_short = false;  // its headers name parts that the file lacks, like an incomplete copy
  // A shared library, not a program: it names no loader, and is no static position-independent
  // program (DF_1_PIE), which looks much the same.
  bool is_library = false;
  bool asks_for_audit = false;  // for libraries that the loader runs before it
  std::string interpreter;      // the loader it asks for; empty for static programs and libraries
  std::string soname;
  std::string rpath, runpath;  // where the loader is to look for its libraries
  std::vector<std::string> needed;
};

// `valid` is false when the file cannot be read or is not ELF.
Elf read_elf(const std::string& path);

// "64-bit x86-64"
std::string describe(const Elf& elf);

// Whether a symbol table of the file defines this function. A stripped file has only the dynamic
// one.
bool defines_function(const std::string& path, const std::string& name);

// The names of the functions that others can link with.
std::vector<std::string> exported_functions(const std::string& path);

// The bytes of a section; empty if there is none.
std::string section_of(const std::string& path, const std::string& name);

// Which of `markers` occur in the parts of the file that are loaded; results are in the order of
// `markers`. Debug information is not searched: it also names things that the program does not use.
std::vector<bool> find_markers(const std::string& path, const std::vector<std::string>& markers);

// --- program.cc and reach.cc: will a preload into this program work? The loader ignores an object
// that it cannot use, with at most a message, and ignores all preloads for set-id programs. The
// program would silently run without Cistern. So these checks come before exec.

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
