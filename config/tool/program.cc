// SPDX-License-Identifier: Apache-2.0
#include "config/tool/tool.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

namespace cistern::config::tool {
namespace {

constexpr int kMaxScripts = 5;  // as deep as the kernel follows #!

std::string quoted(const std::string& text) {
  char room[512];
  LineWriter(room, sizeof room).quoted(text, 300);
  return room;
}

Problem problem(int code, const std::string& what, const std::string& seen,
                const std::string& rest) {
  return {code, what + "; value seen " + quoted(seen) + "; " + rest};
}

// --- Finding the file, as execvp does; the codes are env(1)'s

Problem check_runnable(const std::string& name, const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    return problem(absent ? kNotFound : kCannotRun, std::string(strerror(errno)), name,
                   "allowed: a program in PATH or a path to one; try: command -v " + name);
  }
  if (S_ISDIR(info.st_mode)) {
    return problem(kCannotRun, "a directory is not a program", name,
                   "allowed: an executable file; try: ls " + name);
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return problem(kCannotRun, "the program is not executable", name,
                   "allowed: a file with execute permission; try: chmod +x " + path);
  }
  return {};
}

Problem find_in_path(const std::string& name, std::string& path) {
  const char* list = ::getenv("PATH");
  // An empty entry, also before the first colon and after the last, is the current folder.
  std::istringstream folders((list == nullptr ? "/bin:/usr/bin" : std::string(list)) + ":");
  Problem first;
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    const Problem found = check_runnable(name, candidate);
    if (found.code == 0) return path = candidate, found;
    // A file that is there but cannot be run is what the user wants to hear about.
    if (first.code == 0 || first.code == kNotFound) first = found;
  }
  if (first.code == 0 || first.code == kNotFound) {
    return problem(kNotFound, "program not found in PATH", name,
                   "allowed: a program in PATH or a path to one; try: command -v " + name);
  }
  return first;
}

}  // namespace

Problem find_program(const std::string& name, std::string& path) {
  if (name.find('/') == std::string::npos && !name.empty()) return find_in_path(name, path);
  path = name;
  return check_runnable(name, path);
}

namespace {

// --- Looking through scripts. What is not understood here is left to the kernel.

constexpr char kShell[] = "/bin/sh";  // what execvp hands a file to that the kernel does not know

std::string first_bytes(const std::string& path) {
  char buffer[256];  // as much as the kernel looks at
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  const ssize_t got = ::read(fd, buffer, sizeof buffer);
  ::close(fd);
  return std::string(buffer, got > 0 ? static_cast<size_t>(got) : 0);
}

// Cuts the first word off `line`, at blanks as the kernel sees them: a carriage return is none.
std::string take_word(std::string& line) {
  constexpr char kBlanks[] = " \t";
  line.erase(0, line.find_first_not_of(kBlanks));
  std::string word = line.substr(0, line.find_first_of(kBlanks));
  line.erase(0, word.size());
  return word;
}

// The program that env(1) will start, when its words are plain: NAME, or -S NAME ARGUMENT... Else
// empty: which options it knows, how it splits and in which PATH it looks is its own business.
std::string program_of_env(std::string words) {
  std::string word = take_word(words);
  const bool split = word == "-S";
  if (split) word = take_word(words);
  const bool plain = word.find_first_of("=\\\"'$\r") == std::string::npos && word[0] != '-';
  const bool last = words.find_first_not_of(" \t") == std::string::npos;
  return plain && (split || last) ? word : std::string();
}

// From a script to what its first line asks for.
Problem look_through(const std::string& script, const std::string& head, std::string& next) {
  const size_t end = head.find('\n');
  std::string line = head.substr(2, end == std::string::npos ? end : end - 2);
  const std::string interpreter = take_word(line);
  const bool cut = end == std::string::npos && line.empty() && head.size() == 256;
  if (interpreter.empty() || cut) return next = kShell, Problem();
  next = interpreter;
  if (const Problem found = check_runnable(interpreter, interpreter); found.code != 0) {
    return problem(found.code, "the interpreter of a script cannot be run", script,
                   "its first line asks for " + quoted(interpreter) + "; try: head -n 1 " + script +
                       " | cat -A");
  }
  if (interpreter.substr(interpreter.rfind('/') + 1) != "env") return {};
  std::string started;
  const std::string wanted = program_of_env(line);
  if (!wanted.empty() && find_program(wanted, started).code == 0) next = started;
  return {};
}

// `out.elf` stays invalid when nobody but the kernel can say what the file is.
Problem find_binary(Program& out) {
  out.binary = out.path;
  for (int depth = 0; depth < kMaxScripts; ++depth) {
    out.elf = read_elf(out.binary);
    if (out.elf.valid) return {};
    const std::string head = first_bytes(out.binary);
    if (head.empty() && ::access(out.binary.c_str(), R_OK) != 0) return {};  // runs all the same
    if (head.substr(0, 2) == "#!") {
      const std::string script = out.binary;
      if (Problem found = look_through(script, head, out.binary); found.code != 0) {
        return found;
      }
    } else if (depth == 0 && head.find('\0') == std::string::npos) {
      out.binary = kShell;
    } else {
      return {};
    }
  }
  return {};
}

// --- Reach of LD_PRELOAD

// Whether the kernel will mark the process AT_SECURE, in which the loader ignores LD_PRELOAD.
bool gains_privileges(const std::string& path) {
  struct stat info;
  struct statvfs volume;
  if (::stat(path.c_str(), &info) != 0) return false;
  if (::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return false;
  if (::statvfs(path.c_str(), &volume) == 0 && (volume.f_flag & ST_NOSUID) != 0) return false;
  const bool user = (info.st_mode & S_ISUID) != 0 && info.st_uid != ::getuid();
  const bool group =
      (info.st_mode & S_ISGID) != 0 && (info.st_mode & S_IXGRP) != 0 && info.st_gid != ::getgid();
  const bool capabilities =
      ::getuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  return user || group || capabilities;
}

Problem check_reach(const Program& program, const Elf& object) {
  const Elf& elf = program.elf;
  if (!elf.valid) return {};
  if (Problem found = check_architecture(program, object); found.code != 0) return found;
  if (elf.is_library) {
    return problem(kUsage, "a shared library is no program: one loads it", program.binary,
                   "allowed: a program; try: cistern doctor " + program.binary);
  }
  if (elf.cut_short) {
    return problem(kCannotRun, "the program's file ends before what its head tells of",
                   program.binary, "allowed: a whole file; try: copy or build it again");
  }
  const bool loader = elf.soname.rfind("ld-linux", 0) == 0;  // started by hand, with a program
  if (elf.interpreter.empty() && !loader) {
    return problem(
        kUsage, "the program is statically linked, so nothing can be preloaded into it",
        program.binary,
        "allowed: a dynamically linked program; try: link it without -static, or cistern "
        "run --anyway where it only starts others");
  }
  if (elf.interpreter.find("ld-musl") != std::string::npos) {
    return problem(kUsage, "the program uses the musl C library, the object to preload glibc",
                   program.binary + ": " + elf.interpreter,
                   "allowed: a program for glibc; try: a build of it for glibc");
  }
  if (!loader && ::access(elf.interpreter.c_str(), X_OK) != 0) {
    const int code = errno == ENOENT || errno == ENOTDIR ? kNotFound : kCannotRun;
    return problem(code, "the loader that the program asks for is not on this machine",
                   program.binary + ": " + elf.interpreter,
                   "allowed: a program built for this system; try: ls -l " + elf.interpreter);
  }
  if (gains_privileges(program.binary)) {
    return problem(kUsage,
                   "the program is set-user-ID, set-group-ID or has file capabilities, and "
                   "the loader ignores preloads for those",
                   program.binary,
                   "allowed: an ordinary program; try: a copy of it without these bits");
  }
  return {};
}

// Whether the loader would put something else in the place of a part of the path: $ORIGIN, the
// program's folder, and the like (ld.so(8)).
bool has_loader_token(std::string_view path) {
  for (size_t at = path.find('$'); at != path.npos; at = path.find('$', at + 1)) {
    std::string_view name = path.substr(at + 1);
    if (name.starts_with('{')) name.remove_prefix(1);
    for (const std::string_view token : {"ORIGIN", "LIB", "PLATFORM"}) {
      if (name.starts_with(token)) return true;
    }
  }
  return false;
}

// The name of a file in the loader's folders. Else it could be a list of other libraries, of any
// folder, which a shell that takes the environment would preload into all that it starts.
bool is_file_name(std::string_view name) {
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-+").find(c) != std::string_view::npos;
  });
}

}  // namespace

std::string sanitizer_of(const Elf& elf) {
  for (const std::string& name : elf.needed) {
    if (!is_file_name(name)) continue;
    for (const char* runtime : {"libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so",
                                "libclang_rt.asan", "libclang_rt.tsan", "libclang_rt.hwasan"}) {
      if (name.rfind(runtime, 0) == 0) return name;
    }
  }
  return {};
}

bool is_audited(const Elf& elf) {
  const char* list = ::getenv("LD_AUDIT");
  return elf.asks_for_audit || (list != nullptr && *list != '\0');
}

Problem check_architecture(const Program& program, const Elf& object) {
  const Elf& elf = program.elf;
  if (elf.bits == object.bits && elf.machine == object.machine) return {};
  return problem(kUsage,
                 std::string(elf.is_library ? "the library" : "the program") +
                     " is for another architecture than the object to preload",
                 program.binary + ": " + describe(elf),
                 "allowed: " + describe(object) + "; try: a Cistern built for " + describe(elf));
}

Problem check_object(const std::string& path, Elf& elf) {
  const std::string build = "try: make, or cistern --home DIR with a build or an installation";
  if (::access(path.c_str(), R_OK) != 0) {
    return problem(kUsage, std::string("the object to preload cannot be read: ") + strerror(errno),
                   path, "allowed: a readable library; " + build);
  }
  if (path.find_first_of(" \t:") != std::string::npos) {
    return problem(kUsage, "LD_PRELOAD cannot hold a path with blanks or colons", path,
                   "allowed: a path without them; try: make install PREFIX=/opt/cistern");
  }
  if (has_loader_token(path)) {
    return problem(kUsage, "LD_PRELOAD cannot hold a path with $ORIGIN, $LIB or $PLATFORM", path,
                   "allowed: a path without them; try: make install PREFIX=/opt/cistern");
  }
  elf = read_elf(path);
  if (!elf.valid || !elf.has_dynamic) {
    return problem(kUsage, "the object to preload is not a shared library", path,
                   "allowed: libcistern.so or libcistern-device.so; " + build);
  }
  return {};
}

Problem check_program(const std::string& name, const Elf* object, Program& out) {
  if (Problem found = find_program(name, out.path); found.code != 0) return found;
  if (Problem found = find_binary(out); found.code != 0) return found;
  return object == nullptr ? Problem() : check_reach(out, *object);
}

}  // namespace cistern::config::tool
